package server

import (
	"net/url"
	"strconv"
	"strings"

	"millpond/storage"
)

// grpcNames are the names of gRPC's status codes, by number.
var grpcNames = [...]string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED",
	"FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
}

// grpcOf returns the status that a gRPC call ended with: from the trailers, or from the head where that is all there is. It is nil where none came.
func grpcOf(s *storage.Session) *GRPC {
	media, _, _ := strings.Cut(s.ContentType, ";")
	if media = strings.TrimSpace(media); media != "application/grpc" && !strings.HasPrefix(media, "application/grpc+") {
		return nil
	}
	m := &s.Sides[storage.Response]
	if g := grpcStatus(trailersOf(m.Trailers)); g != nil {
		return g
	}
	return grpcStatus(fieldsOf(m.Head))
}

func grpcStatus(fields []Field) (g *GRPC) {
	message := ""
	for _, f := range fields {
		switch {
		case strings.EqualFold(f[0], "grpc-status"):
			if n, err := strconv.Atoi(f[1]); err == nil && n >= 0 {
				g = &GRPC{Status: n, Name: "code " + f[1]}
				if n < len(grpcNames) {
					g.Name = grpcNames[n]
				}
			}
		case strings.EqualFold(f[0], "grpc-message"):
			message = f[1]
			if plain, err := url.PathUnescape(message); err == nil { // percent-encoded: the gRPC protocol over HTTP/2, "Responses"
				message = strings.ToValidUTF8(plain, "\ufffd")
			}
		}
	}
	if g != nil {
		g.Message = message
	}
	return g
}
