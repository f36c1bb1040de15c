package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// maxRequestBody bounds the JSON of a request, in bytes. The largest is a note of 4,000 characters, each escaped.
const maxRequestBody = 64 << 10

// OpenAPI returns the document that describes the API, indented, with a final line feed. It depends on the Go types alone.
func OpenAPI() ([]byte, error) {
	api := (&Server{}).register()
	compact, err := json.Marshal(api.OpenAPI())
	if err != nil {
		return nil, fmt.Errorf("encode the OpenAPI document: %w", err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, compact, "", "\t"); err != nil {
		return nil, fmt.Errorf("indent the OpenAPI document: %w", err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// register puts every route into s.routes.
func (s *Server) register() huma.API {
	s.routes = &routes{}
	api := humago.New(s.routes, apiConfig())

	s.registerSessions(api)
	s.registerShares(api)
	s.registerShared(api)
	s.registerSettings(api)
	huma.Register(api, operation("GET", "/api/status", "get-status", "How Millpond is"), s.getStatus)
	huma.Register(api, operation("POST", "/api/login", "login", "Exchange the token for a cookie",
		"With `Authorization: Bearer T` alone. The cookie is `HttpOnly`, and its name holds the port. It holds a random id, and opens the dashboard until logout, for a week at most, for a day without use, and not after a restart. "+
			"Browsers give a host's cookies to the servers on all its ports: where you do not trust the others, open the dashboard by a name of its own, as `millpond.localhost`."), s.login)
	huma.Register(api, operation("DELETE", "/api/login", "logout", "End the login", "Its cookie opens nothing any more, whoever has a copy, and its live connections end."), s.logout)

	s.plain(api, s.serveBody, operation("GET", "/api/sessions/{id}/{side}/body", "get-body", "A body's bytes", bodyDoc), bodyParams, bytesAnswer)
	s.plain(api, s.serveBody, operation("HEAD", "/api/sessions/{id}/{side}/body", "head-body", "What get-body without Range would answer, without the bytes"), bodyParams, bytesAnswer)
	s.plain(api, s.servePayload, operation("GET", "/api/sessions/{id}/messages/{number}/payload", "get-payload", "A message's payload", payloadDoc), payloadParams, payloadAnswer)
	s.plain(api, s.serveLive, operation("GET", "/api/live", "live", "Live views, over a WebSocket", liveDoc), nil, upgradeAnswer)
	huma.Register(api, operation("POST", "/api/ca", "replace-ca", "Put a new certificate authority in the place of the present one",
		"It is in force for connections that begin afterwards. Every device and program that trusts the present one stops working through the proxy until it has installed the new one. The old one is kept aside."), s.replaceCA)
	s.plain(api, s.serveCA, operation("GET", "/api/ca", "get-ca", "The CA certificate that devices install"), caParams, caAnswer)
	s.plain(api, s.serveOpenAPI, operation("GET", "/api/openapi.json", "get-openapi", "This document"), nil, jsonAnswer)
	s.plain(api, s.serveMetrics, operation("GET", "/metrics", "get-metrics", "Figures for Prometheus"), nil, textAnswer)
	s.plain(api, s.serveHealth, operation("GET", "/healthz", "get-health", "200 while the program runs; needs no token"), nil, textAnswer)
	s.routes.HandleFunc(backupRoute, s.serveBackup) // not described: it is the command's alone
	s.registerAssets()

	for _, m := range []any{LiveView{}, LiveClose{}, LiveWatch{}, LiveUnwatch{}, LiveWindow{}, LiveInvalid{}, LiveSession{}, LiveStatus{}} {
		t := reflect.TypeOf(m)
		api.OpenAPI().Components.Schemas.Schema(t, true, t.Name())
	}
	return api
}

func apiConfig() huma.Config {
	config := huma.DefaultConfig("Millpond", "1")
	config.Info.Description = apiDoc
	config.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", func(t reflect.Type, hint string) string {
		if t == reflect.TypeFor[Problem]() || t == reflect.TypeFor[*Problem]() {
			return "Problem"
		}
		return huma.DefaultSchemaNamer(t, hint)
	})
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token":  {Type: "http", Scheme: "bearer", Description: "The dashboard's token, or below /api/shared the share's."},
		"cookie": {Type: "apiKey", In: "cookie", Name: "millpond_PORT", Description: "What login gave for the token."},
	}
	config.Security = []map[string][]string{{"token": {}}, {"cookie": {}}}
	config.RejectUnknownQueryParameters = true // a misspelt filter must not delete every session
	config.CreateHooks = nil                   // no $schema fields: they are links into the API that nobody follows
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "", "", ""
	return config
}

func operation(method, path, id, summary string, more ...string) huma.Operation {
	return huma.Operation{
		Method: method, Path: path, OperationID: id, Summary: summary, Description: strings.Join(more, "\n\n"),
		MaxBodyBytes: maxRequestBody,
	}
}

// plain registers a handler that needs the request itself, and describes it.
func (s *Server) plain(api huma.API, h http.HandlerFunc, op huma.Operation, params []*huma.Param, answers map[string]*huma.Response) {
	op.Parameters = append(pathParams(op.Path), params...)
	op.Responses = map[string]*huma.Response{"default": {
		Description: "Problem",
		Content:     map[string]*huma.MediaType{"application/problem+json": {Schema: api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[Problem](), true, "")}},
	}}
	for status, a := range answers {
		op.Responses[status] = a
	}
	if open[op.Method+" "+op.Path] {
		op.Security = []map[string][]string{{}}
	}
	api.OpenAPI().AddOperation(&op)
	s.routes.HandleFunc(op.Method+" "+op.Path, h)
}

func pathParams(path string) []*huma.Param {
	var params []*huma.Param
	for part := range strings.SplitSeq(path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			p := &huma.Param{Name: strings.TrimSuffix(name, "}"), In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}}
			switch p.Name {
			case "id", "number":
				p.Schema = &huma.Schema{Type: huma.TypeInteger, Format: "int64"}
			case "side":
				p.Schema.Enum = []any{"request", "response"}
			}
			params = append(params, p)
		}
	}
	return params
}

// answer is a JSON answer of type T.
type answer[T any] struct{ Body T }

func answerWith[T any](v T, err error) (*answer[T], error) {
	if err != nil {
		return nil, err
	}
	return &answer[T]{v}, nil
}

func (s *Server) serveOpenAPI(w http.ResponseWriter, _ *http.Request) {
	doc, err := OpenAPI()
	if err != nil {
		writeProblem(w, problem(http.StatusInternalServerError, "%v", err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(doc)
}

func (s *Server) registerSessions(api huma.API) {
	huma.Register(api, operation("GET", "/api/sessions", "list-sessions", "List sessions, newest first"), s.listSessions)
	huma.Register(api, operation("DELETE", "/api/sessions", "delete-sessions", "Delete the sessions that match a filter, or all",
		"What begins after the call is not touched. Sessions that are open are dropped at their end. It answers when all are gone; a caller that leaves before ends it, and what is not gone by then stays. One deletion runs at a time, the others wait."), s.deleteSessions)
	start := operation("POST", "/api/deletions", "start-deletion", "Delete as delete-sessions does, without a wait for the end",
		"The status, also that of the live connection, tells how far it is, and for a minute after its end how many went.")
	start.DefaultStatus = http.StatusAccepted
	huma.Register(api, start, s.startDeletion)
	huma.Register(api, operation("DELETE", "/api/deletions/{id}", "cancel-deletion", "Cancel a deletion",
		"What is not gone yet stays. One that ended or failed is no longer told of."), s.cancelDeletion)
	huma.Register(api, operation("GET", "/api/sessions/{id}", "get-session", "All that is known of a session but its bodies' bytes"), s.getSession)
	huma.Register(api, operation("GET", "/api/sessions/{id}/certificates", "get-certificates", "The certificates that upstream showed, none where it showed none"), s.getCertificates)
	huma.Register(api, operation("DELETE", "/api/sessions/{id}", "delete-session", "Delete a session"), s.deleteSession)
	huma.Register(api, operation("GET", "/api/sessions/{id}/messages", "list-messages", "The messages of a WebSocket, the events of an event stream", messagesDoc), s.listMessages)
	huma.Register(api, operation("PATCH", "/api/sessions/{id}", "annotate-session", "Pin, note, colour"), s.annotateSession)
}

func (s *Server) registerShares(api huma.API) {
	huma.Register(api, operation("POST", "/api/shares", "create-share", "Share a session by link",
		"Whoever has the link reads the session and its two bodies, until it expires or is revoked. The values of `Authorization`, `Proxy-Authorization`, `Cookie` and `Set-Cookie` are hidden from them."), s.createShare)
	huma.Register(api, operation("GET", "/api/shares", "list-shares", "The shares that are not dead"), s.listShares)
	huma.Register(api, operation("DELETE", "/api/shares/{id}", "revoke-share", "Revoke a share",
		"Its link is dead at once, also for a page that is open."), s.revokeShare)
}

func (s *Server) registerShared(api huma.API) {
	const base = sharedPrefix + "{share}"
	huma.Register(api, operation("GET", base, "get-shared", "What the share gives", sharedDoc), s.getShared)
	huma.Register(api, operation("POST", base+"/login", "login-shared", "Exchange the share's token for a cookie",
		"With `Authorization: Bearer T` alone. The cookie goes to this share's paths only, so that the browser itself can download a body of any size, and open the WebSocket."), s.loginShared)
	huma.Register(api, operation("GET", base+"/sessions/{id}", "get-shared-session", "As get-session, for the shared session"), s.getSharedSession)
	huma.Register(api, operation("GET", base+"/sessions/{id}/certificates", "get-shared-certificates", "As get-certificates, for the shared session"), s.getSharedCertificates)
	huma.Register(api, operation("GET", base+"/sessions/{id}/messages", "list-shared-messages", "As list-messages, for the shared session"), s.listSharedMessages)
	s.plain(api, s.serveSharedPayload, operation("GET", base+"/sessions/{id}/messages/{number}/payload", "get-shared-payload", "As get-payload, for the shared session"), payloadParams, payloadAnswer)
	s.plain(api, s.serveSharedBody, operation("GET", base+"/sessions/{id}/{side}/body", "get-shared-body", "As get-body, for the shared session"), bodyParams, bytesAnswer)
	s.plain(api, s.serveSharedBody, operation("HEAD", base+"/sessions/{id}/{side}/body", "head-shared-body", "As head-body, for the shared session"), bodyParams, bytesAnswer)
	s.plain(api, s.serveSharedLive, operation("GET", base+"/live", "live-shared", "As live, but only `watch` of the shared session works"), nil, upgradeAnswer)
}

// idInput names a session.
type idInput struct {
	ID uint64 `path:"id"`
}
