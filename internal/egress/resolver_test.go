package egress

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// resolveAllTo returns a connection to a name server that returns addr for every name.
func resolveAllTo(addr netip.Addr) net.Conn {
	client, server := net.Pipe()
	go func() {
		defer server.Close()
		for {
			question := make([]byte, 512+2)
			n, err := server.Read(question)
			if err != nil {
				return
			}
			// A pipe is no packet connection, so messages have a length before them.
			if _, err := server.Write(dnsAnswer(question[2:n], addr)); err != nil {
				return
			}
		}
	}()
	return client
}

// dnsAnswer returns the response to a question of type A. For other types it is empty.
func dnsAnswer(question []byte, addr netip.Addr) []byte {
	end := 12
	for question[end] != 0 {
		end += int(question[end]) + 1
	}
	end += 5 // the root label, type and class
	asksA := binary.BigEndian.Uint16(question[end-4:]) == 1
	message := append([]byte{}, question[:2]...)
	message = append(message, 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0)
	message = append(message, question[12:end]...)
	if asksA {
		message[7] = 1
		message = append(message, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
		message = append(message, addr.AsSlice()...)
	}
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...)
}

func TestDNSAnswer(t *testing.T) {
	t.Parallel()
	question := append([]byte{1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1}, "a\x00\x00\x01\x00\x01"...)
	require.Len(t, dnsAnswer(question, netip.MustParseAddr("127.0.0.1")), 2+len(question)+16)
}
