// Command cmd runs the SQL oracle: the same statements on one PostgreSQL and on clusters of several shapes,
// with the counts of what is equal, different and refused. It is what `make sqldiff` runs.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/pgshoal/pgshoal/sqldiff"
)

type options struct {
	only, nodes, layouts, docs string
	control                    bool
	mix                        int
	duration                   time.Duration
	seed                       uint64
}

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "run only cases whose file:line or text matches this regular expression")
	flag.StringVar(&o.nodes, "nodes", "", "run only clusters of these sizes, e.g. 1,3")
	flag.StringVar(&o.layouts, "layouts", "", "run only these layouts, e.g. hash,apart")
	flag.BoolVar(&o.control, "control", true, "also run on a second plain PostgreSQL: finds statements with more than one right answer")
	flag.IntVar(&o.mix, "mix", 60, "order-entry transactions per layout")
	flag.DurationVar(&o.duration, "duration", 30*time.Second, "time for random statements, over all layouts; 0 for none")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "seed of the random statements")
	flag.StringVar(&o.docs, "docs", "", "write the counts into this document, if the run was complete")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	whole := &wholeRun{}
	differences, err := run(ctx, whole, o)
	whole.end()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "sqldiff:", err)
		os.Exit(2)
	case differences > 0 || whole.Failed():
		fmt.Fprintf(os.Stderr, "sqldiff: %d differences\n", differences)
		os.Exit(1)
	}
}

func run(ctx context.Context, whole *wholeRun, o options) (int, error) {
	all := sqldiff.Options{
		Control: o.control, Modes: []sqldiff.Mode{sqldiff.Simple, sqldiff.Extended, sqldiff.Prepared},
		Mix: o.mix, Random: o.duration, Seed: o.seed, Out: os.Stdout,
	}
	if o.only != "" {
		only, err := regexp.Compile(o.only)
		if err != nil {
			return 0, err
		}
		all.Only = only
	}
	for _, shape := range sqldiff.AllShapes() {
		if o.nodes != "" && !contains(o.nodes, strconv.Itoa(shape.Nodes)) {
			continue
		}
		var layouts []string
		for _, l := range shape.Layouts {
			if o.layouts == "" || contains(o.layouts, l) {
				layouts = append(layouts, l)
			}
		}
		if shape.Layouts = layouts; len(layouts) > 0 {
			all.Shapes = append(all.Shapes, shape)
		}
	}
	report, err := sqldiff.Run(ctx, whole, all)
	if err != nil {
		return 0, err
	}
	if o.docs != "" && o.only == "" && o.nodes == "" && o.layouts == "" {
		return report.Differences(), document(report, o.docs)
	}
	return report.Differences(), nil
}

func contains(list, item string) bool {
	for x := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(x) == item {
			return true
		}
	}
	return false
}

func document(report *sqldiff.Report, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	changed, err := report.Replace(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(changed), 0o644)
}
