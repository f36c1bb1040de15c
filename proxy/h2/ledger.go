package h2

// initialWindow is every window's size until SETTINGS or WINDOW_UPDATE change it, in bytes. RFC 9113, section 6.9.2.
const initialWindow = 65535

// maxDebt is how far a hook's own data may use up credit that the sender was lent already, in bytes, on a connection whose window is small.
const maxDebt = 32 << 10

// window is the ledger of one direction's flow control, of a stream or of the connection: what the receiver will still take
// from us, and what the sender believes it may still send us. While everything is relayed the two are one. They part
// where a hook receives or sends in the place of an end, and where credit is withheld; a stream's are counted from its initial window.
type window struct {
	real int64 // bytes the receiver will still take
	lent int64 // bytes the sender may still send
	kept bool  // the receiver's credit is not for the sender: it is withheld, or the ends were parted
	want bool  // the sender used its last credit, and has to wait for the receiver's: hooks come after it
}

// grant books n bytes of credit that the receiver gave.
func (w *window) grant(n int64) { w.real += n }

// pass returns how much credit the sender is to get so that it has at most so many bytes, and books it as lent.
func (w *window) pass(most int64) int64 {
	n := min(w.real, most) - w.lent
	if w.kept || n <= 0 {
		return 0
	}
	w.lent += n
	return n
}

// receive books n bytes that the sender sent.
func (w *window) receive(n int64) { w.lent -= n }

// forward books n bytes that were passed on to the receiver.
func (w *window) forward(n int64) { w.real -= n }

// repay books n bytes that we took ourselves, and for which the sender gets credit from us.
func (w *window) repay(n int64) { w.lent += n }

// spare returns how many bytes, up to want, a hook may send on the connection now. It may use credit that the sender was lent too,
// within bounds: all of it may be lent while the sender is silent, and then the receiver never gives more. The debt is paid from what the receiver gives next;
// until then a sender that uses its last credit has to wait (relay.data).
func (w *window) spare(want int64) int64 {
	if w.want {
		return 0
	}
	debt := max(maxDebt, w.real/2)
	return max(0, min(want, w.real, debt+w.real-w.lent))
}
