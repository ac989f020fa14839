package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// crossRun measures statements over two nodes as ratios to one PostgreSQL that has all rows.
type crossRun struct {
	options
	dir    string
	plain  target   // one PostgreSQL with all rows
	router target   // of the cluster of two nodes
	nodes  []string // the cluster's servers themselves
}

// crossCase is one statement, asked by some clients at once.
type crossCase struct {
	name     string
	script   string
	protocol string
	target   float64 // the least ratio that is wanted; 0: it is reported only
	slow     bool    // one statement may take longer than a measurement: each client asks once
}

func (r *crossRun) cases() []crossCase {
	rows := r.crossRows
	keys := fmt.Sprintf("\\set id random(1, %d)\n", rows-10000)
	join := keys + "SELECT i.amount, p.qty FROM item i JOIN part p ON p.item_id = i.id WHERE i.id = :id;\n"
	sum := keys + "SELECT count(*), sum(amount) FROM item WHERE id BETWEEN :id AND :id + 9999;\n"
	top := "SELECT id, amount FROM item ORDER BY id LIMIT 10;\n"
	far := keys + `INSERT INTO far SELECT serial, amount FROM item WHERE id BETWEEN :id AND :id + 999 ON CONFLICT DO NOTHING;` + "\n"
	return []crossCase{
		{"scan: count, sum, max of all rows", "SELECT count(*), sum(amount), max(kind) FROM item;\n", "prepared", 0.9, false},
		{"10,000 keys: count and sum", sum, "prepared", 0.6, false},
		{"10,000 keys, literals", sum, "simple", 0, false},
		{"ORDER BY key LIMIT 10", top, "prepared", 0.25, false},
		{"ORDER BY key LIMIT 10, literals", top, "simple", 0, false},
		{"co-located join of one key", join, "prepared", 0.6, false},
		{"co-located join of one key, literals", join, "simple", 0, false},
		{"groups: 1,000 of all rows", "SELECT kind, count(*), sum(amount) FROM item GROUP BY kind ORDER BY kind LIMIT 5;\n", "prepared", 0, false},
		{"broadcast join: all rows, 1,000 kinds", "SELECT k.region, count(*), sum(i.amount) FROM item i JOIN kind k ON k.id = i.kind GROUP BY k.region;\n", "prepared", 0, true},
		{"broadcast join: all rows, 200,000 visits", "SELECT count(*), sum(v.n) FROM item i JOIN visit v ON v.serial = i.serial;\n", "prepared", 0, true},
		{"repartition join: 200,000 visits by the key", "SELECT count(*), sum(v.n) FROM item i JOIN visit v ON v.serial = i.id;\n", "prepared", 0, true},
		{"gathered join: FULL JOIN, 200,000 visits", "SELECT count(*), sum(v.n) FROM item i FULL JOIN visit v ON v.serial = i.serial;\n", "prepared", 0, true},
		{"INSERT ... SELECT of 1,000 rows, same key", strings.ReplaceAll(strings.ReplaceAll(far, "far", "near"), "serial", "id"), "prepared", 0, false},
		{"INSERT ... SELECT of 1,000 rows, other key", far, "prepared", 0, false},
	}
}

func runCross(ctx context.Context, o options) error {
	r, err := newCross(ctx, o)
	if err != nil {
		return err
	}
	defer r.stop()
	if err := r.startPlain(ctx); err != nil {
		return err
	}
	fmt.Printf("over two nodes, %d rows, 8 clients, %d rounds of %v; medians\n\n", o.crossRows, o.rounds, o.duration)
	fmt.Printf("%-44s %12s %12s %8s %8s %8s\n", "", "PostgreSQL/s", "pgshoal/s", "ratio", "wanted", "by CPU")
	for _, c := range r.cases() {
		if !strings.Contains(c.name, o.only) {
			continue
		}
		if err := r.measure(ctx, c); err != nil {
			return err
		}
	}
	if strings.Contains(gatherName, o.only) {
		return r.gather(ctx)
	}
	return nil
}

// newCross starts a cluster of two nodes and fills it.
func newCross(ctx context.Context, o options) (_ *crossRun, err error) {
	dir, err := os.MkdirTemp("", "pgshoal-bench")
	if err != nil {
		return nil, err
	}
	r := &crossRun{options: o, dir: dir}
	defer func() {
		if err != nil {
			r.stop()
		}
	}()
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	if r.router, r.nodes, err = r.up(ctx, "two", 2); err != nil {
		return nil, err
	}
	if err := execAll(ctx, r.router.dsn, append(crossTables(r.crossRows), crossPlacing...)...); err != nil {
		return nil, err
	}
	return r, analyzed(ctx, r.nodes...)
}

// startPlain starts one PostgreSQL with the same rows.
func (r *crossRun) startPlain(ctx context.Context) error {
	beside, one, err := r.up(ctx, "one", 1)
	if err != nil {
		return err
	}
	r.plain = target{dsn: one[0], servers: beside.servers}
	if err := execAll(ctx, r.plain.dsn, crossTables(r.crossRows)...); err != nil {
		return err
	}
	return analyzed(ctx, r.plain.dsn)
}

// analyzed gives all servers the same start: no dead rows, statistics, a visibility map. Distributing a table leaves room for the
// rows that went away on the home node, which a scan of all rows would read as well.
func analyzed(ctx context.Context, servers ...string) error {
	for _, dsn := range servers {
		if err := execAll(ctx, dsn, "VACUUM (FULL, ANALYZE)", "VACUUM", "CHECKPOINT"); err != nil {
			return err
		}
	}
	return nil
}

func (r *crossRun) stop() {
	for _, name := range []string{"one", "two"} {
		_ = exec.Command(r.pgshoal, "down", "--dir", filepath.Join(r.dir, name)).Run()
	}
	_ = os.RemoveAll(r.dir)
}

// up starts a cluster and returns its router and its servers.
func (r *crossRun) up(ctx context.Context, name string, nodes int) (router target, servers []string, err error) {
	dir := filepath.Join(r.dir, name)
	cmd := exec.CommandContext(ctx, r.pgshoal, "up", "--dir", dir, "--nodes", fmt.Sprint(nodes), "--port", "0", "--http", "127.0.0.1:0", "--detach")
	if out, err := cmd.CombinedOutput(); err != nil {
		return target{}, nil, fmt.Errorf("starting a cluster: %w: %s", err, out)
	}
	out, err := exec.CommandContext(ctx, r.pgshoal, "status", "--dir", dir, "--json").Output()
	if err != nil {
		return target{}, nil, fmt.Errorf("reading the cluster's status: %w", err)
	}
	var status struct {
		Nodes, Routers []struct {
			DSN string
			PID int
		}
	}
	if err := json.Unmarshal(out, &status); err != nil {
		return target{}, nil, err
	}
	router = target{dsn: status.Routers[0].DSN, pid: status.Routers[0].PID}
	for _, n := range status.Nodes {
		servers = append(servers, n.DSN)
		router.servers = append(router.servers, n.PID)
	}
	return router, servers, nil
}

// crossTables makes the tables and fills them, as one PostgreSQL has them.
func crossTables(rows int) []string {
	return []string{
		"CREATE TABLE item (id bigint PRIMARY KEY, kind int NOT NULL, serial bigint NOT NULL, amount int NOT NULL, filler text)",
		"CREATE TABLE part (item_id bigint, no int, qty int, PRIMARY KEY (item_id, no))",
		"CREATE TABLE kind (id int PRIMARY KEY, region int NOT NULL)",
		"CREATE TABLE visit (id bigint PRIMARY KEY, serial bigint NOT NULL, n int)",
		"CREATE TABLE near (id bigint PRIMARY KEY, amount int)",
		"CREATE TABLE far (serial bigint PRIMARY KEY, amount int)",
		fmt.Sprintf("INSERT INTO item SELECT g, g %% 1000, %d - g, g %% 317, repeat('x', 40) FROM generate_series(1, %[1]d) g", rows),
		fmt.Sprintf("INSERT INTO part SELECT g, 1, g %% 7 FROM generate_series(1, %d) g", rows),
		"INSERT INTO kind SELECT g, g % 10 FROM generate_series(0, 999) g",
		fmt.Sprintf("INSERT INTO visit SELECT g, g * 5, g %% 11 FROM generate_series(1, %d) g", rows/5),
	}
}

var crossPlacing = []string{
	"SELECT create_distributed_table('item', 'id')",
	"SELECT create_distributed_table('part', 'item_id', colocate_with => 'item')",
	"SELECT create_distributed_table('near', 'id', colocate_with => 'item')",
	"SELECT create_distributed_table('kind', 'id', colocate_with => 'none')",
	"SELECT create_distributed_table('visit', 'id', colocate_with => 'none')",
	"SELECT create_distributed_table('far', 'serial', colocate_with => 'none')",
}

// measure asks one PostgreSQL and the cluster in turn and prints the medians.
func (r *crossRun) measure(ctx context.Context, c crossCase) error {
	path := filepath.Join(r.dir, "script.sql")
	if err := os.WriteFile(path, []byte(c.script), 0o644); err != nil {
		return err
	}
	w := workload{c.name, path, c.protocol, crossClients}
	var samples [2][]sample
	for range r.rounds {
		for i, t := range []target{r.plain, r.router} {
			var one sample
			var err error
			if c.slow {
				one, err = onceEach(ctx, t, c.script)
			} else {
				one, err = once(ctx, w, t, r.options)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			samples[i] = append(samples[i], one)
		}
	}
	report(c.name, samples, c.target)
	return nil
}

const crossClients = 8

// onceEach lets each client ask once, all at the same time.
func onceEach(ctx context.Context, t target, sql string) (one sample, err error) {
	conns := make([]*pgx.Conn, crossClients)
	for i := range conns {
		if conns[i], err = pgx.Connect(ctx, t.dsn); err != nil {
			return sample{}, err
		}
		defer conns[i].Close(ctx)
	}
	began, cpu := time.Now(), t.cpu()
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range conns {
		g.Go(func() error {
			_, err := c.Exec(ctx, sql)
			return err
		})
	}
	err = g.Wait()
	return sample{crossClients / time.Since(began).Seconds(), (t.cpu() - cpu) * 1e6 / crossClients}, err
}

func report(name string, samples [2][]sample, wanted float64) {
	plain, ours := median(samples[0]), median(samples[1])
	want := ""
	if wanted > 0 {
		want = fmt.Sprintf("%.2f", wanted)
	}
	cpu := ""
	if plain.cpu > 0 && ours.cpu > 0 {
		cpu = fmt.Sprintf("%.2f", plain.cpu/ours.cpu)
	}
	fmt.Printf("%-44s %12.2f %12.2f %8.2f %8s %8s\n", name, plain.perSecond, ours.perSecond, ours.perSecond/plain.perSecond, want, cpu)
}

const gatherName = "gather of 100,000 rows, against psql | psql"

// gather compares moving rows to one node with two psql that do the same between two servers.
func (r *crossRun) gather(ctx context.Context) error {
	psql, err := lookPath("psql")
	if err != nil {
		return err
	}
	pipe := fmt.Sprintf(`%[1]s -Xqc "COPY (SELECT id, amount, filler FROM item WHERE id <= 100000) TO STDOUT" '%[2]s' | `+
		`%[1]s -Xqc "BEGIN" -c "CREATE TEMPORARY TABLE copied (id bigint, amount int, filler text) ON COMMIT DROP" -c "COPY copied FROM STDIN" `+
		`-c "SELECT count(id), count(filler), array_length(array_agg(amount), 1) FROM copied" -c COMMIT '%[3]s' >/dev/null`, psql, r.plain.dsn, r.nodes[0])
	query := fmt.Sprintf(`%s -Xqc "SELECT count(id), count(filler), array_length(array_agg(amount), 1) FROM item WHERE id <= 100000" '%s' >/dev/null`, psql, r.router.dsn)
	var samples [2][]sample
	for range max(r.rounds, 3) * 3 {
		for i, command := range []string{pipe, query} {
			began := time.Now()
			if out, err := exec.CommandContext(ctx, "sh", "-c", command).CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w: %s", command, err, out)
			}
			samples[i] = append(samples[i], sample{perSecond: 1 / time.Since(began).Seconds()})
		}
	}
	report(gatherName, samples, 0.8)
	return nil
}
