package server

import (
	"golang.org/x/net/http2"

	"millpond/storage"
)

func http2Of(h *storage.HTTP2) *HTTP2 {
	out := &HTTP2{
		StreamID: h.Stream,
		Settings: HTTP2Settings{Client: settingsOf(h.ClientSettings), Upstream: settingsOf(h.UpstreamSettings)},
	}
	if r := h.Reset; r != nil {
		out.Reset = &Reset{r.By.String(), r.Code, http2.ErrCode(r.Code).String()}
	}
	for _, g := range h.Away {
		out.GoAway = append(out.GoAway, GoAway{
			By: g.By.String(), LastStreamID: g.Last, Code: g.Code, Name: http2.ErrCode(g.Code).String(),
			Debug: latin1(g.Debug), DebugBytes: g.Size,
		})
	}
	return out
}

func settingsOf(list []storage.Setting) []Setting {
	out := make([]Setting, len(list))
	for i, s := range list {
		out[i] = Setting{s.ID, http2.SettingID(s.ID).String(), s.Value}
	}
	return out
}
