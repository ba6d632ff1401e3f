package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// bureau is the service that workflows call. It is a separate process: a call between
// processes takes 25 to 90 µs, a call within one process only 15 µs.
type bureau struct {
	addr  string
	cmd   *exec.Cmd
	lives io.Closer // the process ends when it is closed
}

// bureauArgument makes this program run the bureau.
const bureauArgument = "bureau"

// startBureau starts this program as the bureau.
func startBureau(ctx context.Context) (*bureau, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, bureauArgument) // #nosec G204 -- this program
	lives, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	b := &bureau{cmd: cmd, lives: lives}
	addr, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	b.addr = strings.TrimSpace(addr)
	return b, nil
}

func (b *bureau) url(path string) string { return "http://" + b.addr + path }

func (b *bureau) close() error { return errors.Join(b.lives.Close(), b.cmd.Wait()) }

// runBureau answers calls until lives ends. It writes its address first.
func runBureau(ctx context.Context, lives io.Reader, address io.Writer) error {
	b, err := openBureau(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	if _, err := fmt.Fprintln(address, b.addr); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, lives)
	return err
}

// bureauServer answers calls. It shares the machine with the measured service, so it
// implements only the necessary part of HTTP/1.1, in half the time of net/http's server.
type bureauServer struct {
	addr     string
	listener net.Listener
}

const (
	atOncePath   = "/score"
	slowPath     = "/slow-score" // answers after slowTime
	slowTime     = 20 * time.Millisecond
	bureauAnswer = `{"score": 700.50}`
)

func openBureau(ctx context.Context) (*bureauServer, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &bureauServer{addr: listener.Addr().String(), listener: listener}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // the listener is closed
			}
			go b.serve(conn)
		}
	}()
	return b, nil
}

// close accepts no more connections. Open connections end with their callers.
func (b *bureauServer) close() { _ = b.listener.Close() }

// serve answers the calls of a connection until the caller closes it or sends a request
// that workflows do not send.
func (b *bureauServer) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	reader := bufio.NewReader(conn)
	var answer []byte
	for {
		path, err := b.read(reader)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(err.Error()), err)
			return
		}
		if path == slowPath {
			time.Sleep(slowTime)
		}
		answer = append(answer[:0], "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: "...)
		answer = time.Now().UTC().AppendFormat(answer, http.TimeFormat)
		answer = strconv.AppendInt(append(answer, "\r\nContent-Length: "...), int64(len(bureauAnswer)), 10)
		answer = append(append(answer, "\r\n\r\n"...), bureauAnswer...)
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}

// read reads a call: a GET of one of the paths, without a body, with this host and an
// Idempotency-Key. It returns io.EOF after the last call.
func (b *bureauServer) read(reader *bufio.Reader) (path string, err error) {
	line, err := reader.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	switch string(line) {
	case "GET " + atOncePath + " HTTP/1.1\r\n":
		path = atOncePath
	case "GET " + slowPath + " HTTP/1.1\r\n":
		path = slowPath
	default:
		return "", fmt.Errorf("unknown request: %q", line)
	}
	hosted, keyed := false, false
	for {
		if line, err = reader.ReadSlice('\n'); err != nil {
			return "", err
		}
		name, value, isHeader := bytes.Cut(bytes.TrimSuffix(line, []byte("\r\n")), []byte(": "))
		switch {
		case len(name) == 0 && !isHeader && hosted && keyed:
			return path, nil
		case !isHeader:
			return "", fmt.Errorf("malformed header, or Host or Idempotency-Key missing before %q", line)
		case bytes.EqualFold(name, []byte("Host")):
			hosted = string(value) == b.addr
		case bytes.EqualFold(name, []byte("Idempotency-Key")):
			keyed = len(value) > 0
		case bytes.EqualFold(name, []byte("Transfer-Encoding")), bytes.EqualFold(name, []byte("Content-Length")) && string(value) != "0":
			return "", errors.New("the request must not have a body")
		}
	}
}
