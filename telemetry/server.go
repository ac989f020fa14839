package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"
)

// Server is the HTTP side of a process. It owns its goroutine; Close waits for it.
type Server struct {
	listener net.Listener
	server   *http.Server
	done     chan struct{}
}

// Listen takes the address, so that a taken port is known before anything else starts.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	return l, nil
}

// Serve answers with the handler until Close.
func Serve(l net.Listener, handler http.Handler, log *slog.Logger) *Server {
	s := &Server{
		listener: l,
		server: &http.Server{
			Handler:           handler,
			ReadHeaderTimeout: 10 * time.Second,
			IdleTimeout:       2 * time.Minute,
			ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		},
		done: make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		if err := s.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("HTTP server ended", "error", err)
		}
	}()
	return s
}

// Close lets running requests finish until the context ends, then cuts them off.
func (s *Server) Close(ctx context.Context) error {
	err := s.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.server.Close())
	}
	<-s.done
	return err
}

// ReachableAddress is how other processes of the cluster get to a listener: a listener on all
// addresses is reached by the machine's name.
func ReachableAddress(l net.Listener) string {
	tcp, ok := l.Addr().(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return l.Addr().String()
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return net.JoinHostPort(host, fmt.Sprint(tcp.Port))
}
