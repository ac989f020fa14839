// Package telemetry shows from outside what happens inside the processes of a cluster: logs,
// Prometheus metrics, traces and health. The packages that do the work know nothing of it.
package telemetry

import (
	"fmt"
	"io"
	"log/slog"
)

// NewLogger makes the logger of a process. The level can be changed while the process runs.
func NewLogger(w io.Writer, format, level string) (*slog.Logger, *slog.LevelVar, error) {
	var v slog.LevelVar
	if err := SetLevel(&v, level); err != nil {
		return nil, nil, err
	}
	options := &slog.HandlerOptions{Level: &v}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), &v, nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), &v, nil
	}
	return nil, nil, fmt.Errorf("telemetry: log format %q is neither text nor json", format)
}

// SetLevel changes what a logger of NewLogger writes: debug, info, warn or error and up.
func SetLevel(v *slog.LevelVar, level string) error {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return fmt.Errorf("telemetry: log level: %w", err)
	}
	v.Set(l)
	return nil
}
