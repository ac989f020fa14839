package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"github.com/pgshoal/pgshoal/placement"
	"github.com/pgshoal/pgshoal/simulate"
)

type simulateOptions struct {
	strategies, placements string
	dist, regions          string
	plot                   string
	json                   bool
	cfg                    simulate.Config
}

func newSimulateCommand(env *environment) *cobra.Command {
	var o simulateOptions
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Show what ways of sharding cost, without a server",
		Long: `Spread keys over shards and shards over nodes by the chosen strategies and placements, change the number of nodes,
and print what that costs: balance, keys and bytes moved, the hottest node, fan-out of range queries, size of the
map, lookup time.

Strategies: mod (hash modulo the number of nodes; only here, to show why not), hash, range, list, directory.
Placements: balanced, ring, rendezvous, jump, maglev, bounded.`,
		Example: `  pgshoal simulate --nodes 3 --to 4
  pgshoal simulate --strategy all --placement balanced --dist timestamps --plot spread.svg
  pgshoal simulate --strategy hash --placement all --nodes 1000 --to 1001 --shards 1000000 --keys 100000000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			if !cmd.Flags().Changed("to") {
				o.cfg.To = o.cfg.Nodes + 1
			}
			return runSimulate(ctx, env, o)
		},
	}
	o.addFlags(cmd)
	return cmd
}

func (o *simulateOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.strategies, "strategy", "mod,hash", "`strategies`, with commas, or all")
	f.StringVar(&o.placements, "placement", "all", "`placements`, with commas, or all")
	f.IntVar(&o.cfg.Nodes, "nodes", 3, "nodes before")
	f.IntVar(&o.cfg.To, "to", 0, "nodes after (default one more)")
	f.IntVar(&o.cfg.Shards, "shards", 0, "shards (default 1024 for each node, at most a million)")
	f.Uint64Var(&o.cfg.Keys, "keys", 1_000_000, "rows")
	f.StringVar(&o.dist, "dist", "uniform", "their `keys`: uniform, zipf:EXPONENT, sequential, timestamps, file:PATH (one key a line)")
	f.Uint64Var(&o.cfg.Distinct, "distinct", 0, "different keys of zipf (default a million, at most --keys)")
	f.IntVar(&o.cfg.RowBytes, "row-bytes", 200, "average size of a row")
	f.Float64Var(&o.cfg.Writes, "writes", 0.2, "part of the statements that write; sequential and timestamps write at the end")
	f.Float64Var(&o.cfg.Popularity, "popularity", 0, "`exponent` of Zipf's law by which statements choose keys; 0: all rows alike")
	f.Float64Var(&o.cfg.RangeWidth, "range-width", 0.001, "part of the rows that a range query asks for")
	f.StringVar(&o.regions, "regions", "eu=0.5,us=0.3,ap=0.2", "regions of list, and their parts of the rows")
	f.Uint64Var(&o.cfg.Seed, "seed", 1, "the same seed gives the same keys")
	usual := placement.Default(placement.Balanced)
	f.Float64Var(&o.cfg.Placement.Slack, "slack", usual.Slack, "balanced: nodes within this part of their fair part are left alone")
	f.IntVar(&o.cfg.Placement.VirtualNodes, "virtual-nodes", usual.VirtualNodes, "ring, bounded: points of a node on the ring")
	f.IntVar(&o.cfg.Placement.TableSize, "table-size", usual.TableSize, "maglev: entries of the table, a prime number")
	f.Float64Var(&o.cfg.Placement.Factor, "factor", usual.Factor, "bounded: a node holds at most this multiple of the mean")
	f.StringVar(&o.plot, "plot", "", "draw a picture to this `file`, which ends in .png or .svg")
	f.BoolVar(&o.json, "json", false, "print JSON")
}

func runSimulate(ctx context.Context, env *environment, o simulateOptions) error {
	if err := o.parse(); err != nil {
		return namingFlag(err)
	}
	report, err := simulate.Run(ctx, o.cfg)
	if err != nil {
		return namingFlag(err)
	}
	if o.plot != "" {
		if err := writePlot(report, o.plot); err != nil {
			return namingFlag(err)
		}
	}
	if o.json {
		encoder := json.NewEncoder(env.stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(report)
	}
	if err := report.WriteTable(env.stdout); err != nil {
		return err
	}
	return report.WriteBars(env.stdout)
}

func (o *simulateOptions) parse() (err error) {
	if o.cfg.Strategies, err = simulate.ParseStrategies(o.strategies); err != nil {
		return err
	}
	if o.cfg.Placements, err = simulate.ParsePlacements(o.placements); err != nil {
		return err
	}
	if o.cfg.Regions, err = simulate.ParseRegions(o.regions); err != nil {
		return err
	}
	if o.cfg.Dist, err = simulate.ParseDist(o.dist); err != nil {
		return err
	}
	o.cfg.Dist.Open = func() (io.ReadCloser, error) { return os.Open(o.cfg.Dist.Path) }
	if o.plot == "" {
		return nil
	}
	return simulate.PlotFormat(o.plot)
}

func writePlot(report *simulate.Report, name string) (err error) {
	file, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return report.WritePlot(file, name)
}

// namingFlag turns what is wrong with an input into a usage error that names the flag.
func namingFlag(err error) error {
	var input *simulate.InputError
	if errors.As(err, &input) {
		return newUsageError("--%s: %s", input.Field, input.Message)
	}
	return err
}
