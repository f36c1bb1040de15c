package wire

// further is a row of docs/wire.md about something that no single report is behind.
type further struct {
	what  string
	shown []proof // existing tests; TestWire/slug is a case of the table
}

func row(what string, shown ...proof) further { return further{what, shown} }

// furtherSection is a part of docs/wire.md below the cases.
type furtherSection struct {
	title, what string
	rows        []further
}

var furtherSections = []furtherSection{
	{"Clients that are not ours", "client; bytes are compared at both ends, and its rows", []further{
		row("curl: HTTP/1.0, 1.1 and 2, `CONNECT`, SOCKS5, uploads with a length, chunked, and with Expect",
			shown("e2e/wire", "TestCurl"), shown("e2e/wire", "TestCurlUploadIsRefused")),
		row("wget", shown("e2e/wire", "TestWget")),
		row("git: clone and push over HTTPS, with HTTP/1.1 and HTTP/2", shown("e2e/wire", "TestGit")),
		row("Node's fetch", shown("e2e/wire", "TestNodeFetch")),
		row("Python's urllib", shown("e2e/wire", "TestPythonURLLib")),
		row("openssl, without SNI", shown("e2e/wire", "TestOpenSSL")),
		row("gRPC: unary, streaming both ways, a status that is no OK", shown("e2e/wire", "TestGRPC")),
		row("gorilla/websocket, compressed", shown("e2e/wire", "TestGorillaWebSocket")),
		row("Chromium: WebSocket and EventSource",
			shown("e2e/browser", "a page's WebSocket over ${protocol} is listed message by message, as they come"),
			shown("e2e/browser", "a page's EventSource is listed event by event, as they come")),
	}},
	{"Made to be read in two ways, and to break", "what", []further{
		row("Desync: HTTP/1 messages with two ends, through the proxy and inside a tunnel", shown("proxy", "TestDesync")),
		row("A CONNECT and its answer have no framing", shown("proxy", "TestConnectHasNoFraming")),
		row("Differences from `net/http`: an example of each, and random connections read by both",
			shown("proxy", "TestDifferencesFromNetHTTP"), shown("proxy", "TestRandomMessagesMeanTheSame")),
		row("HTTP/2: what an end must not send, from either side", shown("proxy/h2", "TestVectors")),
		row("HTTP/2: random frames", shown("proxy/h2", "TestRandomFrames")),
	}},
	{"Many, long and slow", "what", []further{
		row("One body of 1 GiB, over each protocol: memory is flat", shown("e2e", "TestMemoryOfLargeBodies")),
		row("Three hundred clients at once, over each protocol: memory is bounded", shown("e2e", "TestMemoryOfManyClients")),
		row("Connections that both sides end in every ugly way leave no goroutine, descriptor or memory", shown("proxy", "TestUglyConnectionsLeaveNothing")),
		row("Many hosts, one CONNECT each: every certificate is right, and the cache of leaves and memory are bounded", shown("proxy", "TestManyHosts")),
		row("10,000 WebSocket messages without a pause: all are listed, also after SIGKILL", shown("e2e", "TestTenThousandMessagesWithoutAPause")),
		row("50,000 requests on one HTTP/2 connection, an eighth of them reset", shown("proxy", "TestHTTP2ManyRequestsOnOneConnection")),
		row("A slow reader; a hundred HTTP/2 streams of which none is read", shown("e2e/wire", "TestWire/slow-client"), shown("e2e", "TestUnreadStreams")),
		row("With every time limit at 2 s, a silence of 5 s ends nothing", shown("proxy", "TestSilenceIsNoStall")),
	}},
}
