package etcdtopo

import (
	"context"
	"log/slog"
	"sync/atomic"

	"go.uber.org/zap/zapcore"
)

// slogCore passes what etcd logs with level warn and above on to slog, but lower, because what
// etcd calls a warning is about slow disks and what it calls an error mends itself; what does not
// ends the server and is an error here too. While the server is being closed all is silent.
type slogCore struct {
	log   *slog.Logger
	muted *atomic.Bool
}

var _ zapcore.Core = (*slogCore)(nil)

// Enabled implements zapcore.LevelEnabler.
func (c *slogCore) Enabled(l zapcore.Level) bool { return l >= zapcore.WarnLevel }

// With implements zapcore.Core.
func (c *slogCore) With(fields []zapcore.Field) zapcore.Core {
	return &slogCore{log: c.log.With(attrs(fields)...), muted: c.muted}
}

// Check implements zapcore.Core.
func (c *slogCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Write implements zapcore.Core.
func (c *slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	if c.muted.Load() {
		return nil
	}
	level := slog.LevelError
	switch e.Level {
	case zapcore.WarnLevel:
		level = slog.LevelDebug
	case zapcore.ErrorLevel:
		level = slog.LevelInfo
	}
	c.log.Log(context.Background(), level, e.Message, attrs(fields)...)
	return nil
}

// Sync implements zapcore.Core.
func (c *slogCore) Sync() error { return nil }

func attrs(fields []zapcore.Field) []any {
	enc := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(enc)
	}
	var out []any
	for k, v := range enc.Fields {
		out = append(out, slog.Any(k, v))
	}
	return out
}
