package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// workload is one script under one protocol with one number of clients.
type workload struct {
	name     string
	script   string
	protocol string
	clients  int
}

var scripts = map[string]string{
	"select": "\\set id random(1, %d)\nSELECT balance FROM item WHERE id = :id;\n",
	"update": "\\set id random(1, %d)\nUPDATE item SET balance = balance + 1 WHERE id = :id;\n",
}

func (s *setup) workloads(o options) ([]workload, error) {
	var list []workload
	for _, name := range []string{"select", "update"} {
		path := filepath.Join(s.dir, name+".sql")
		if err := os.WriteFile(path, fmt.Appendf(nil, scripts[name], o.rows), 0o644); err != nil {
			return nil, err
		}
		for _, protocol := range []string{"simple", "extended", "prepared"} {
			for c := range strings.SplitSeq(o.clients, ",") {
				n, err := strconv.Atoi(strings.TrimSpace(c))
				if err != nil {
					return nil, fmt.Errorf("clients: %w", err)
				}
				w := workload{fmt.Sprintf("%s/%s/%d", name, protocol, n), path, protocol, n}
				if strings.Contains(w.name, o.only) {
					list = append(list, w)
				}
			}
		}
	}
	return list, nil
}

// sample is one measurement.
type sample struct {
	perSecond float64
	cpu       float64 // microseconds of the proxy per statement, and of the target's servers
}

// measure runs a workload against all targets in turn, round by round, and prints the medians.
func (s *setup) measure(ctx context.Context, w workload, o options) error {
	bouncer := s.bouncer
	if w.protocol == "prepared" {
		bouncer = s.session
	}
	targets := []target{s.node, bouncer, s.router}
	samples := make([][]sample, len(targets))
	for range o.rounds {
		for i, t := range targets {
			one, err := once(ctx, w, t, o)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			samples[i] = append(samples[i], one)
		}
	}
	plain, pooled, ours := median(samples[0]), median(samples[1]), median(samples[2])
	fmt.Printf("%-24s %10.0f | %9.2f %9.2f %9.2f | %9.1f %9.1f %9.2f\n", w.name, plain.perSecond,
		pooled.perSecond/plain.perSecond, ours.perSecond/plain.perSecond, ours.perSecond/pooled.perSecond,
		pooled.cpu, ours.cpu, ours.cpu/pooled.cpu)
	return nil
}

func median(list []sample) sample {
	var rates, cpus []float64
	for _, s := range list {
		rates = append(rates, s.perSecond)
		cpus = append(cpus, s.cpu)
	}
	slices.Sort(rates)
	slices.Sort(cpus)
	return sample{rates[len(rates)/2], cpus[len(cpus)/2]}
}

// progressLine is what pgbench reports every second, once all its clients are connected.
var progressLine = regexp.MustCompile(`^progress: ([0-9.]+) s, ([0-9.]+) tps`)

// once runs pgbench against one target and ends it when it has worked long enough: pgbench's own limit
// counts from before its logins. The first second does not count, so that neither logins, which cost a proxy
// thousands of statements each, nor plans that are made for the first time blur the rest.
func once(ctx context.Context, w workload, t target, o options) (sample, error) {
	pgbench, err := lookPath("pgbench")
	if err != nil {
		return sample{}, err
	}
	cmd := exec.CommandContext(ctx, pgbench, "-n", "-M", w.protocol, "-f", w.script, "-c", strconv.Itoa(w.clients), "-j", "2",
		"-P", "1", "-T", strconv.Itoa(longest), t.dsn)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return sample{}, err
	}
	if err := cmd.Start(); err != nil {
		return sample{}, fmt.Errorf("pgbench: %w", err)
	}
	one, said := follow(stderr, t, o.duration.Seconds())
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	if ctx.Err() != nil {
		return sample{}, context.Cause(ctx)
	}
	if one.perSecond == 0 {
		return sample{}, fmt.Errorf("pgbench said: %s", said)
	}
	return one, nil
}

// longest is how many seconds pgbench may take in all.
const longest = 600

// fewest is of how many statements the CPU time says something.
const fewest = 100

// follow reads pgbench's reports as they come and measures from the first one for some seconds. What else
// it said comes back too.
func follow(reports io.Reader, t target, seconds float64) (sample, string) {
	var said strings.Builder
	var began, last, statements, cpuBegan, cpuLast float64
	lines := bufio.NewScanner(reports)
	for (began == 0 || last-began < seconds-0.5) && lines.Scan() {
		m := progressLine.FindStringSubmatch(lines.Text())
		if m == nil {
			said.WriteString(lines.Text() + "\n")
			continue
		}
		at, _ := strconv.ParseFloat(m[1], 64)
		rate, _ := strconv.ParseFloat(m[2], 64)
		if cpuLast = t.cpu(); began == 0 {
			began, cpuBegan = at, cpuLast
		} else {
			statements += rate * (at - last)
		}
		last = at
	}
	if statements == 0 {
		return sample{}, said.String()
	}
	one := sample{perSecond: statements / (last - began)}
	if statements >= fewest { // else those that were under way at either end count for too much
		one.cpu = (cpuLast - cpuBegan) * 1e6 / statements
	}
	return one, said.String()
}

// cpu is the CPU time in seconds that the target has taken so far.
func (t target) cpu() float64 {
	if len(t.servers) == 0 {
		return cpuTime(t.pid)
	}
	return cpuTime(t.pid) + cpuOf(t.servers...)
}

// cpuTime is the CPU time of a process in seconds, 0 for none.
func cpuTime(pid int) float64 {
	own, _, _ := procStat(strconv.Itoa(pid))
	return own
}

// procStat reads the CPU time of a process and that of its ended children, in seconds, and the parent; zeroes for no process.
func procStat(pid string) (own, ended float64, parent int) {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, 0, 0
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+2:]))
	number := func(i int) float64 {
		n, _ := strconv.ParseFloat(fields[i], 64)
		return n
	}
	const ticks = 100 // per second, on every Linux
	return (number(11) + number(12)) / ticks, (number(13) + number(14)) / ticks, int(number(1))
}

// cpuOf is the CPU time in seconds of processes and of all their children, which are the backends of a server.
func cpuOf(pids ...int) float64 {
	sum := 0.0
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range processes {
		own, ended, parent := procStat(filepath.Base(path))
		pid, _ := strconv.Atoi(filepath.Base(path))
		if slices.Contains(pids, pid) {
			sum += own + ended
		} else if slices.Contains(pids, parent) {
			sum += own
		}
	}
	return sum
}
