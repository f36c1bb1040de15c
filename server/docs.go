package server

import "github.com/danielgtaylor/huma/v2"

// What the OpenAPI document says beyond the types.

const apiDoc = "Times are RFC 3339 with nanoseconds, sizes are bytes, durations are milliseconds, ids are integers that only grow. " +
	"Errors are RFC 9457 problems whose `detail` says what to do.\n\n" +
	"Every call needs `Authorization: Bearer T`, or the cookie that `login` gives for it. `Host` must name the dashboard, " +
	"`Origin` and `Sec-Fetch-Site`, where a browser sends them, the dashboard's own origin."

const bodyDoc = "The bytes as forwarded: after removal of chunked framing, before content decoding. `?as=decoded` undoes the content codings. " +
	"Never with a type of their own: `application/octet-stream`, `attachment`, `nosniff`, in a sandbox.\n\n" +
	"`Millpond-Body` tells how it is: `complete`, `growing`, or `incomplete` (the sender broke off, or capture was cut: nothing will be added).\n\n" +
	"**Complete or incomplete**: 200, or 206 for a `Range`; `ETag` (strong), `Repr-Digest` (sha-256) once known, at once for what is small or when asked for with `Want-Repr-Digest: sha-256=1`; " +
	"`If-Range`, `If-Match`, `If-None-Match`.\n\n" +
	"**Growing**: always 206, also without `Range`, for the part that is there, with `Content-Range: bytes a-b/*`; 204 while there is nothing. " +
	"With `?download` (and without `Range`) 200, and the bytes follow as they come, to the end.\n\n" +
	"One range at a time: more than one, one that cannot be read, or one that begins after what is there is 416 with `Content-Range: bytes */SIZE`, the size so far. The bytes of an open body can be polled that way: " +
	"a 416 says that there is nothing new.\n\n" +
	"**Decoded**: while it is made it grows, as above. `Millpond-Decode-Error` tells why it ends before the end of the body, where it does (cut short, damaged, beyond the limit in bytes or ratio). " +
	"A body of which nothing can be decoded is 422: its label lies."

const messagesDoc = "In the order in which they ended, numbered from 0; a number never changes. A session has messages where it has a field `messages`. The list grows while the session is open: " +
	"a watch of the session tells how many there are. Any page costs the same.\n\n" +
	"A message lies in its side's body, at `offset` with `length`: the frames as they passed, masked where the client masks. An event lies in the response's body without its content coding."

const payloadDoc = "Never with a type of its own, as for a body, and by range. As it passed: for a WebSocket without the heads of frames and without masking, and compressed where the message is; " +
	"for an event its lines. `?as=decoded`: decompressed; for an event its data, with a line feed between lines.\n\n" +
	"A message that cannot be decompressed is 422 when asked for decoded: damaged, or after a damaged one on which it depends. One that is still being decompressed is 503 after two seconds."

const liveDoc = "Text messages, one JSON object each, at most 16 KiB from the browser. The handshake needs the cookie with `Origin`, or `Authorization: Bearer T`.\n\n" +
	"Browser to server: `LiveView`, `LiveClose`, `LiveWatch`, `LiveUnwatch`. Server to browser: `LiveWindow`, `LiveInvalid`, `LiveSession`, `LiveStatus`.\n\n" +
	"A **view** is a filter and a window over the sessions that match, in order of arrival. Its window comes at first and whenever its total or a row in it changes, at most 10 times a second, " +
	"the latest state only: a browser that reads slowly misses states, never the last one. The same id again replaces the view; with the same filter only the window moves. " +
	"`from` counts from the first row the view ever had, so what arrives moves nothing; when the oldest go, `first` rises; other removals and late matches move what follows, and the window is sent again. " +
	"While the sessions are looked through, `scanning` is true and `total` rises.\n\n" +
	"A **watch** sends `LiveSession` at first and whenever that session changes, at most 10 times a second.\n\n" +
	"`LiveStatus` comes by itself. A connection has at most 8 views and 8 watches; one more is refused with `LiveInvalid`. The server pings every 30 s. After the connection is lost, connect again and send the views again."

const sharedDoc = "Below this path a share's token takes the place of the dashboard's: `Authorization: Bearer T` with the token from the link's fragment, or the cookie that `login-shared` gives for it. " +
	"A share that never was, expired or was revoked, and everything that is not in the share, answers 404, all alike."

var bodyParams = []*huma.Param{
	{Name: "as", In: "query", Description: "Another representation: decoded.", Schema: &huma.Schema{Type: huma.TypeString, Enum: []any{"decoded"}}},
	{Name: "download", In: "query", Description: "Give a file name, and follow a growing body to its end.", Schema: &huma.Schema{Type: huma.TypeString}},
	{Name: "Range", In: "header", Schema: &huma.Schema{Type: huma.TypeString}},
	{Name: "If-Range", In: "header", Schema: &huma.Schema{Type: huma.TypeString}},
}

var payloadParams = []*huma.Param{
	{Name: "as", In: "query", Description: "Another representation: decoded.", Schema: &huma.Schema{Type: huma.TypeString, Enum: []any{"decoded"}}},
	{Name: "download", In: "query", Description: "Give a file name.", Schema: &huma.Schema{Type: huma.TypeString}},
	{Name: "Range", In: "header", Schema: &huma.Schema{Type: huma.TypeString}},
	{Name: "If-Range", In: "header", Schema: &huma.Schema{Type: huma.TypeString}},
}

var caParams = []*huma.Param{{Name: "form", In: "query", Schema: &huma.Schema{Type: huma.TypeString, Enum: []any{"pem", "der", "cer", "mobileconfig"}}}}

var (
	bytesAnswer = map[string]*huma.Response{
		"200": bytesOf("The whole body.", "application/octet-stream"),
		"204": {Description: "Nothing is there yet."},
		"206": bytesOf("A part.", "application/octet-stream"),
		"416": {Description: "No such part; Content-Range has the size so far."},
		"422": {Description: "Nothing of it can be decoded."},
	}
	payloadAnswer = map[string]*huma.Response{
		"200": bytesOf("The whole payload.", "application/octet-stream"),
		"206": bytesOf("A part.", "application/octet-stream"),
		"416": {Description: "No such part; Content-Range has the size."},
		"422": {Description: "It cannot be decoded."},
		"503": {Description: "It is still being decompressed."},
	}
	upgradeAnswer = map[string]*huma.Response{"101": {Description: "A WebSocket."}}
	caAnswer      = map[string]*huma.Response{"200": bytesOf("The certificate.", "application/x-pem-file")}
	jsonAnswer    = map[string]*huma.Response{"200": {Description: "JSON.", Content: map[string]*huma.MediaType{"application/json": {Schema: &huma.Schema{}}}}}
	textAnswer    = map[string]*huma.Response{"200": {Description: "Text.", Content: map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}}}}
)

func bytesOf(description, mediaType string) *huma.Response {
	return &huma.Response{Description: description, Content: map[string]*huma.MediaType{
		mediaType: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}},
	}}
}
