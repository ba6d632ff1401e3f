package httpapi

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
)

// CallerAddress returns the IP address of the caller. It is empty if it is unknown.
func CallerAddress(ctx context.Context) string { return requestOf(ctx).address }

// addressOf returns the address of the connection's peer. If the peer is a trusted
// proxy, it returns the last address in X-Forwarded-For that is not a trusted proxy;
// the caller may have made up the addresses before it.
func (s *Server) addressOf(r *http.Request) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	address := peer.Addr().Unmap().WithZone("")
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && s.isTrustedProxy(address); i-- {
		hop, err := parseHop(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		address = hop.Unmap().WithZone("")
	}
	return address.String()
}

// parseHop parses an entry of X-Forwarded-For. Some proxies add the port, others
// only the brackets of an IPv6 address.
func parseHop(text string) (netip.Addr, error) {
	for _, form := range []string{text, text + ":0"} {
		if hop, err := netip.ParseAddrPort(form); err == nil {
			return hop.Addr(), nil
		}
	}
	return netip.ParseAddr(text)
}

func (s *Server) isTrustedProxy(address netip.Addr) bool {
	for _, prefix := range s.config.TrustedProxies {
		if prefix.Contains(address) {
			return true
		}
	}
	return false
}
