package wire

var largeCases, webSocketCases, tlsCases, engineCases []wireCase
