package egress

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Exceptions are addresses that are not public and that the operator allows
// (TRANCHE_EGRESS_ALLOW).
type Exceptions []Exception

// Exception allows the addresses of a prefix, on one port or on all ports.
type Exception struct {
	Prefix netip.Prefix
	Port   uint16 // 0 means every port
}

// ParseAllow parses a comma-separated list of CIDR or CIDR:port, for example
// "127.0.0.1/32:8081, 10.0.0.0/8, [fd00::/8]:443, fd12::/16". An IPv6 prefix with a port needs
// brackets. An address without a length is a prefix of this address only.
func ParseAllow(text string) (Exceptions, error) {
	var all Exceptions
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		e, err := parseException(item)
		if err != nil {
			return nil, fmt.Errorf("egress exception %q: %w", item, err)
		}
		all = append(all, e)
	}
	return all, nil
}

func parseException(item string) (Exception, error) {
	cidr, portText := item, ""
	switch {
	case strings.HasPrefix(item, "["):
		inside, after, closed := strings.Cut(item[1:], "]")
		if !closed || (after != "" && !strings.HasPrefix(after, ":")) {
			return Exception{}, fmt.Errorf("must be [prefix]:port")
		}
		cidr, portText = inside, after
	case strings.Count(item, ":") == 1:
		i := strings.IndexByte(item, ':')
		cidr, portText = item[:i], item[i:]
	}
	prefix, err := parsePrefix(cidr)
	if err != nil {
		return Exception{}, err
	}
	e := Exception{Prefix: prefix}
	if portText != "" {
		port, err := strconv.ParseUint(portText[1:], 10, 16)
		if err != nil || port == 0 {
			return Exception{}, fmt.Errorf("the port must be a number from 1 to 65535")
		}
		e.Port = uint16(port)
	}
	return e, nil
}

func parsePrefix(text string) (netip.Prefix, error) {
	if !strings.Contains(text, "/") {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return netip.Prefix{}, fmt.Errorf("must be an address or a CIDR prefix")
		}
		addr = addr.Unmap().WithZone("")
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("must be a CIDR prefix")
	}
	if prefix.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("must be an IPv4 prefix instead of an IPv4-mapped one")
	}
	if prefix != prefix.Masked() {
		return netip.Prefix{}, fmt.Errorf("has bits after the prefix length; write %s", prefix.Masked())
	}
	return prefix, nil
}

// allows reports whether an exception allows the destination.
func (x Exceptions) allows(to netip.AddrPort) bool {
	addr := to.Addr().Unmap().WithZone("")
	for _, e := range x {
		if e.Prefix.Contains(addr) && (e.Port == 0 || e.Port == to.Port()) {
			return true
		}
	}
	return false
}

// String returns the exceptions in the format of ParseAllow.
func (x Exceptions) String() string {
	parts := make([]string, len(x))
	for i, e := range x {
		switch {
		case e.Port == 0:
			parts[i] = e.Prefix.String()
		case e.Prefix.Addr().Is4():
			parts[i] = fmt.Sprintf("%s:%d", e.Prefix, e.Port)
		default:
			parts[i] = fmt.Sprintf("[%s]:%d", e.Prefix, e.Port)
		}
	}
	return strings.Join(parts, ",")
}
