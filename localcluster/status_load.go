package localcluster

import (
	"context"
	"net/http"
	"sync"

	"github.com/pgshoal/pgshoal/telemetry"
)

// loads asks all routers side by side how many clients they serve. A router that does not say is
// not unwell for that: its HTTP side may be off.
func (e *examiner) loads(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var wg sync.WaitGroup
	for i := range e.status.Routers {
		r := &e.status.Routers[i]
		if r.HTTP == "" || r.State != stateRunning {
			continue
		}
		wg.Go(func() {
			if load, err := telemetry.ReadLoad(ctx, client, r.HTTP); err == nil {
				r.Clients, r.Pinned = &load.Clients, &load.Pinned
			}
		})
	}
	wg.Wait()
}
