package wire

var tlsCases, engineCases []wireCase
