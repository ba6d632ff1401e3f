package api

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
)

// callerAddress returns the IP address that a request came from, empty where
// there is none to tell.
func callerAddress(ctx context.Context) string { return requestOf(ctx).address }

// addressOf is the address of the connection's other end, or, where that is a
// trusted proxy, the last one in X-Forwarded-For that is not: whatever stands
// before it may be made up.
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

// parseHop reads an entry of X-Forwarded-For, to which some proxies add the port and
// others only the brackets of an address by IPv6.
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
