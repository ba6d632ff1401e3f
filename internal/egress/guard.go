package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"syscall"

	"code.dny.dev/ssrf"
)

// urlBytesMax bounds an address: what common servers still accept.
const urlBytesMax = 8 << 10

// azurePlatform looks public and is not: every virtual machine of Azure reaches the
// platform there, its certificates and settings among other things.
const azurePlatform = "168.63.129.16/32"

// errRefused marks a dial that the guard stopped.
var errRefused = errors.New("the address is not a public one")

// guard returns the control function of a dialer. It sees the address that is
// about to be connected to, after name resolution, so neither a name that
// resolves anew (rebinding) nor a redirect passes it. Public addresses are
// open on every port: lenders' services do listen on odd ones, and what must
// be protected is the network that this process stands in.
func guard(open Exceptions) func(network, address string, _ syscall.RawConn) error {
	public := ssrf.New(ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(netip.MustParsePrefix(azurePlatform)))
	return func(network, address string, conn syscall.RawConn) error {
		if to, err := netip.ParseAddrPort(address); err == nil && isTCP(network) && open.allows(to) {
			return nil
		}
		if err := public.Safe(network, address, conn); err != nil {
			return fmt.Errorf("%w: %w", errRefused, err)
		}
		return nil
	}
}

func isTCP(network string) bool { return network == "tcp4" || network == "tcp6" }

// CheckURL reports why a request must not be sent to an address, as a message
// that is safe to show: it must be absolute, http or https, with a host and
// without credentials. Whether the host may be reached is only known when it is
// dialled.
func CheckURL(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("must begin with http:// or https://")
	case u.User != nil:
		return errors.New("must not hold credentials")
	case u.Hostname() == "":
		return errors.New("has no host")
	case len(u.String()) > urlBytesMax:
		return fmt.Errorf("is longer than %d bytes", urlBytesMax)
	}
	return nil
}

// HeaderRefused reports whether a request header must not be set by a tenant,
// because it steers the connection or is the service's own to set.
func HeaderRefused(name string) bool {
	name = strings.ToLower(name)
	switch name {
	case "host", "content-length", "transfer-encoding", "connection", "te", "trailer", "upgrade",
		"keep-alive", "expect", "accept-encoding", "http2-settings":
		return true
	}
	return strings.HasPrefix(name, "proxy-")
}
