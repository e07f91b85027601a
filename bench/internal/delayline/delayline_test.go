package delayline

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

// What goes in comes out, in order and whole, through chunks of every size.
func TestBytesKeepTheirOrder(t *testing.T) {
	a, b := net.Pipe()
	c := Wrap(a, time.Millisecond)
	defer c.Close()
	want := make([]byte, 3*chunkBytes+17)
	for i := range want {
		want[i] = byte(i * 7)
	}
	go func() {
		got := make([]byte, len(want))
		io.ReadFull(b, got)
		b.Write(got)
		b.Close()
	}()
	go c.Write(want)
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes came back of %d, equal %v, %v", len(got), len(want), bytes.Equal(got, want), err)
	}
}
