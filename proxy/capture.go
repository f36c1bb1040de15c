package proxy

import (
	"fmt"
	"net/http"

	martian "github.com/google/martian/v3"

	"millpond/storage"
)

// exchangeKey is where a request's Martian context keeps its exchange.
const exchangeKey = "millpond.exchange"

// capture is the last modifier of the pipeline. On a request it settles what is sent on and begins the recording; on a response it settles what is
// sent back and records the head. The bodies follow from the relay, as they pass.
type capture struct{ store *storage.Store }

var (
	_ martian.RequestModifier  = capture{}
	_ martian.ResponseModifier = capture{}
)

func (p *Proxy) capture() capture { return capture{p.cfg.Store} }

// ModifyRequest begins the recording of the exchange that req belongs to.
func (c capture) ModifyRequest(req *http.Request) error {
	x, err := exchangeOf(req)
	if err != nil {
		return err
	}
	if err := x.settleRequest(); err != nil {
		return err
	}
	x.record()
	return nil
}

// ModifyResponse records the response's head.
func (c capture) ModifyResponse(res *http.Response) error {
	x, err := exchangeOf(res.Request)
	if err != nil {
		return err
	}
	if err := x.settleResponse(); err != nil {
		return err
	}
	x.recordResponse()
	return nil
}

// exchangeOf returns the exchange that was linked to the request.
func exchangeOf(req *http.Request) (*exchange, error) {
	if ctx := martian.NewContext(req); ctx != nil {
		if x, ok := ctx.Get(exchangeKey); ok {
			return x.(*exchange), nil
		}
	}
	return nil, fmt.Errorf("capture: a modifier replaced the request")
}
