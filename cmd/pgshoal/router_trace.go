package main

import (
	"context"
	"time"

	"github.com/pgshoal/pgshoal/telemetry"
)

// startTracing sends traces where the configuration says, if it does.
func (p *routerProcess) startTracing(ctx context.Context) error {
	t := &p.cfg.Telemetry
	if t.OTLPEndpoint == "" {
		return nil
	}
	var err error
	p.tracer, err = telemetry.NewTracer(ctx, telemetry.TraceConfig{
		Endpoint: t.OTLPEndpoint, Sample: t.TraceSample,
		Cluster: p.cfg.Cluster.Name, Name: p.cfg.Router.Name, Version: version(),
	}, p.log)
	return err
}

// stopTracing sends what is left; a collector that is away must not hold the process up for long.
func (p *routerProcess) stopTracing() {
	if p.tracer == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := p.tracer.Close(ctx); err != nil {
		p.log.Warn("the last traces are lost", "error", err)
	}
}
