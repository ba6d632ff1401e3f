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

// urlBytesMax is the length of an address that common servers accept.
const urlBytesMax = 8 << 10

// azurePlatform is in a public range but leads to the platform of Azure, which gives each
// virtual machine its certificates and settings.
const azurePlatform = "168.63.129.16/32"

// errRefused marks a connection that the guard refused.
var errRefused = errors.New("the address is not public")

// guard returns the control function of a dialer. It checks the address after name
// resolution, just before the connection, so it also covers redirects and names that resolve
// to another address later (DNS rebinding). It protects the network of this process. It
// allows every port of public addresses, because services of lenders use unusual ports.
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

// CheckURL returns an error if u is not an absolute http or https address with a host and
// without credentials. The message is safe to show. The guard checks the host when the
// request connects.
func CheckURL(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("must begin with http:// or https://")
	case u.User != nil:
		return errors.New("must not contain credentials")
	case u.Hostname() == "":
		return errors.New("must have a host")
	case len(u.String()) > urlBytesMax:
		return fmt.Errorf("must have at most %d bytes", urlBytesMax)
	}
	return nil
}

// HeaderRefused reports whether a tenant must not set a request header, because the header
// controls the connection or the service sets it.
func HeaderRefused(name string) bool {
	name = strings.ToLower(name)
	switch name {
	case "host", "content-length", "transfer-encoding", "connection", "te", "trailer", "upgrade",
		"keep-alive", "expect", "accept-encoding", "http2-settings":
		return true
	}
	return strings.HasPrefix(name, "proxy-")
}
