package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"millpond/e2e/harness"
)

// plain is a codec whose messages are their bytes, so that no generated code is needed.
type plain struct{}

func (plain) Marshal(v any) ([]byte, error)   { return *v.(*[]byte), nil }
func (plain) Unmarshal(b []byte, v any) error { *v.(*[]byte) = append([]byte(nil), b...); return nil }
func (plain) Name() string                    { return "plain" }

// grpcEcho is a service of three methods: Echo answers with what it got, Talk with each message as it comes, and Fail with a status.
var grpcEcho = grpc.ServiceDesc{
	ServiceName: "test.Echo",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{
		{MethodName: "Echo", Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			var message []byte
			err := errors.Join(decode(&message), grpc.SetTrailer(ctx, metadata.Pairs("x-sum", fmt.Sprint(len(message)))))
			return &message, err
		}},
		{MethodName: "Fail", Handler: func(any, context.Context, func(any) error, grpc.UnaryServerInterceptor) (any, error) {
			return nil, status.Error(codes.NotFound, "no such café")
		}},
	},
	Streams: []grpc.StreamDesc{{StreamName: "Talk", ClientStreams: true, ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
		for {
			var message []byte
			if err := s.RecvMsg(&message); errors.Is(err, io.EOF) {
				s.SetTrailer(metadata.Pairs("x-talk", "over"))
				return nil
			} else if err != nil {
				return err
			}
			if err := s.SendMsg(&message); err != nil {
				return err
			}
		}
	}}},
}

// gRPC: unary, streaming both ways at once, and a call that fails; trailers pass, and the session tells the status.
func TestGRPC(t *testing.T) {
	w := startWorld(t)
	r := &run{T: t, world: w, protocol: harness.HTTP2}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	r.must(err)
	server := grpc.NewServer(grpc.ForceServerCodec(plain{}), grpc.Creds(credentials.NewServerTLSFromCert(&w.cert)))
	server.RegisterService(&grpcEcho, nil)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	client, err := grpc.NewClient("passthrough:///"+l.Addr().String(),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: w.roots, ServerName: "127.0.0.1"})),
		grpc.WithContextDialer(func(_ context.Context, addr string) (net.Conn, error) { return harness.Dial(w.program.Proxy, addr) }),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(plain{})))
	r.must(err)
	defer client.Close()

	t.Run("unary", func(t *testing.T) {
		sent, got := []byte(strings.Repeat("hello ", 100_000)), []byte(nil)
		var trailer metadata.MD
		r.must(client.Invoke(t.Context(), "/test.Echo/Echo", &sent, &got, grpc.Trailer(&trailer)))
		if string(got) != string(sent) || trailer.Get("x-sum")[0] != "600000" {
			t.Errorf("got %d bytes, trailer %v", len(got), trailer)
		}
		s := expectGRPC(t, w, "/test.Echo/Echo", 0, "")
		if s.RequestBytes != 600_005 || s.ResponseBytes != 600_005 { // each message has a prefix of 5 bytes
			t.Errorf("session tells %d and %d bytes", s.RequestBytes, s.ResponseBytes)
		}
		if fmt.Sprint(s.Response.Trailers) != "[[grpc-status 0] [grpc-message ] [x-sum 600000]]" {
			t.Errorf("session tells trailers %q", s.Response.Trailers)
		}
	})
	t.Run("both ways", func(t *testing.T) {
		stream, err := client.NewStream(t.Context(), &grpcEcho.Streams[0], "/test.Echo/Talk")
		r.must(err)
		for i := range 50 { // each waits for the answer to the one before
			sent, got := []byte(strings.Repeat("word ", i*100)), []byte(nil)
			r.must(stream.SendMsg(&sent))
			r.must(stream.RecvMsg(&got))
			if string(got) != string(sent) {
				t.Fatalf("message %d came back as %d bytes", i, len(got))
			}
		}
		r.must(stream.CloseSend())
		var got []byte
		if err := stream.RecvMsg(&got); !errors.Is(err, io.EOF) {
			t.Errorf("the stream ended with %v", err)
		}
		if over := stream.Trailer().Get("x-talk"); len(over) != 1 {
			t.Errorf("trailer %v", stream.Trailer())
		}
		expectGRPC(t, w, "/test.Echo/Talk", 0, "")
	})
	t.Run("failing", func(t *testing.T) {
		var sent, got []byte
		err := client.Invoke(t.Context(), "/test.Echo/Fail", &sent, &got)
		if status.Code(err) != codes.NotFound || status.Convert(err).Message() != "no such café" {
			t.Errorf("got %v", err)
		}
		expectGRPC(t, w, "/test.Echo/Fail", 5, "no such café")
	})
}

// expectGRPC checks the session of a call, and the status it tells.
func expectGRPC(t *testing.T, w *world, path string, code int, message string) harness.Session {
	t.Helper()
	s := w.program.Await(t, path, harness.Ended)
	var told struct {
		GRPC *struct {
			Status  int
			Message string
		}
	}
	w.program.Get(t, fmt.Sprintf("/api/sessions/%d", s.ID), &told)
	if s.State != "done" || s.Protocol != "HTTP/2" || told.GRPC == nil || told.GRPC.Status != code || told.GRPC.Message != message {
		t.Errorf("session is %s (%s) in %s, tells %+v; want status %d %q", s.State, s.Error, s.Protocol, told.GRPC, code, message)
	}
	return s
}
