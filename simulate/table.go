package simulate

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteTable prints the numbers for people.
func (r *Report) WriteTable(out io.Writer) error {
	fmt.Fprintf(out, "%s keys (%s), %s, %.4g%% writes, range queries for %.4g%% of the rows\n\n",
		grouped(r.Keys), r.Dist, r.change(), 100*r.Writes, 100*r.Range)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	columns := "max/mean\tstddev\tkeys moved\t/min\tbytes moved\thottest node\tfan-out\tmap\tlookup\tplacing\t"
	fmt.Fprintf(w, "%s\tshards\t%s\n", r.pad("strategy", "placement"), columns)
	for _, res := range r.Results {
		fmt.Fprintf(w, "%s\t%d\t%.3f\t%.1f%%\t%.2f%%\t%s\t%s\t%s\t%.4g\t%s\t%.0f ns\t%s\t\n",
			r.pad(string(res.Strategy), placementName(res)), res.Shards, res.After.MaxMean, 100*res.After.StdDev,
			100*res.MovedShare, r.timesMinimum(res), byteSize(res.MovedBytes),
			fmt.Sprintf("%s %.3g%%", res.After.Hottest, 100*res.After.HottestShare), res.FanOut, byteSize(res.MapBytes),
			res.LookupNS, placingTime(res))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, res := range r.Results {
		if t := res.Table; t != nil {
			fmt.Fprintf(out, "\n%s: its table of %d entries is even to max/mean %.4f; %.2f%% of the entries change", res.Name(), t.Size, t.MaxMean, 100*t.Changed)
		}
	}
	_, err := fmt.Fprintf(out, "\nthe least that evenness needs to move is %.2f%%; an even node gets %.3g%% of the load; %.1f s\n",
		100*r.Minimum, 100/float64(r.To), r.Seconds)
	return err
}

func (r *Report) change() string {
	if r.Nodes == r.To {
		return fmt.Sprintf("%d nodes", r.Nodes)
	}
	return fmt.Sprintf("%d nodes become %d", r.Nodes, r.To)
}

// pad aligns the two names to the left, while numbers are aligned to the right.
func (r *Report) pad(strategy, placed string) string {
	first, second := len("strategy"), len("placement")
	for _, res := range r.Results {
		first, second = max(first, len(res.Strategy)), max(second, len(placementName(res)))
	}
	return fmt.Sprintf("%-*s  %-*s", first, strategy, second, placed)
}

func placementName(r Result) string {
	if r.Placement == "" {
		return "-"
	}
	return string(r.Placement)
}

func placingTime(r Result) string {
	if r.Placement == "" {
		return "-"
	}
	return fmt.Sprintf("%.0f ns", r.PlacingNS)
}

func (r *Report) timesMinimum(res Result) string {
	if r.Minimum == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", res.MovedShare/r.Minimum)
}

// WriteBars draws the two numbers that differ most in the terminal.
func (r *Report) WriteBars(out io.Writer) error {
	var charts []panel
	for _, p := range r.panels() {
		if p.inTerminal {
			charts = append(charts, p)
		}
	}
	width := 0
	for _, res := range r.Results {
		width = max(width, len(res.Name()))
	}
	for _, p := range charts {
		fmt.Fprintf(out, "\n%s\n", p.title)
		for i, res := range r.Results {
			fmt.Fprintf(out, "%-*s  %s %s\n", width, res.Name(), bar(p.values[i]/p.top, p.mark/p.top), p.label(p.values[i]))
		}
		if p.markName != "" {
			fmt.Fprintf(out, "%-*s  %s %s %s\n", width, "", strings.Repeat(" ", markAt(p.mark/p.top))+"┊"+strings.Repeat(" ", barWidth-markAt(p.mark/p.top)-1), p.markName, p.label(p.mark))
		}
	}
	_, err := fmt.Fprintln(out)
	return err
}

const barWidth = 48

func markAt(part float64) int { return min(max(int(part*barWidth+0.5), 0), barWidth-1) }

// bar is a line of blocks in eighths, with a mark behind it.
func bar(part, mark float64) string {
	eighths := int(part*barWidth*8 + 0.5)
	if part > 0 && eighths == 0 {
		eighths = 1
	}
	cells := make([]rune, barWidth)
	for i := range cells {
		switch left := eighths - 8*i; {
		case left >= 8:
			cells[i] = '█'
		case left > 0:
			cells[i] = []rune(" ▏▎▍▌▋▊▉")[left]
		case mark > 0 && i == markAt(mark):
			cells[i] = '┊'
		default:
			cells[i] = ' '
		}
	}
	return string(cells)
}

func byteSize(n uint64) string {
	value, units := float64(n), "kMGTP"
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	unit := -1
	for value >= 999.5 && unit+1 < len(units) {
		value /= 1000
		unit++
	}
	return fmt.Sprintf("%.3g %cB", value, units[unit])
}

// grouped writes 1234567 as 1,234,567.
func grouped(n uint64) string {
	digits := fmt.Sprint(n)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}
