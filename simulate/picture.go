package simulate

import (
	"fmt"
	"io"
	"math"
	"path"
	"strings"
)

// panel is one column of a picture: the same number for every result.
type panel struct {
	title, subtitle string
	values          []float64
	top             float64 // the end of the axis
	mark            float64 // where the ideal is
	markName        string
	label, tick     func(float64) string // how a value is written, and how at the axis
	inTerminal      bool
}

func (r *Report) panels() []panel {
	moved := panel{title: "Keys that move", subtitle: "when " + r.change(), mark: r.Minimum, markName: "minimum", label: percent, tick: func(v float64) string { return plain(100*v) + "%" }, inTerminal: true}
	even := panel{title: "Fullest node", subtitle: "bytes, as a multiple of the mean", mark: 1, markName: "even", label: times, tick: func(v float64) string { return plain(v) + "×" }, inTerminal: true}
	hot := panel{title: "Hottest node", subtitle: "statements, as a multiple of the mean", mark: 1, markName: "even", label: times, tick: even.tick}
	asked := panel{title: "Nodes per range query", subtitle: fmt.Sprintf("of %d, for %.4g%% of the rows", r.To, 100*r.Range), label: plain, tick: plain}
	if r.Nodes == r.To {
		moved.markName, moved.subtitle = "", "without a change of nodes"
	}
	for _, res := range r.Results {
		moved.values = append(moved.values, res.MovedShare)
		even.values = append(even.values, res.After.MaxMean)
		hot.values = append(hot.values, res.After.HottestShare*float64(r.To))
		asked.values = append(asked.values, res.FanOut)
	}
	moved.inTerminal = r.Nodes != r.To
	list := []panel{moved, even, hot, asked}
	for i := range list {
		list[i].setTop()
	}
	return list
}

// setTop ends the axis at a round number above all values.
func (p *panel) setTop() {
	highest := p.mark
	for _, v := range p.values {
		highest = max(highest, v)
	}
	if highest <= 0 {
		p.top = 1
		return
	}
	unit := math.Pow(10, math.Floor(math.Log10(highest)))
	for _, round := range []float64{1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10} {
		if p.top = round * unit; p.top >= highest*1.0001 {
			return
		}
	}
}

func percent(v float64) string {
	if v < 0.1 {
		return fmt.Sprintf("%.2f%%", 100*v)
	}
	return fmt.Sprintf("%.1f%%", 100*v)
}

func times(v float64) string {
	if v < 9.995 {
		return fmt.Sprintf("%.2f×", v)
	}
	return fmt.Sprintf("%.3g×", v)
}

func plain(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// PlotFormat says whether a picture can be written to a file of that name.
func PlotFormat(file string) error {
	if ext := strings.ToLower(path.Ext(file)); ext != ".png" && ext != ".svg" {
		return wrong("plot", "%q does not end in .png or .svg", file)
	}
	return nil
}

// WritePlot draws the picture, in the format of the file's name.
func (r *Report) WritePlot(out io.Writer, file string) error {
	if err := PlotFormat(file); err != nil {
		return err
	}
	if len(r.Results) > maxPlotted {
		return wrong("plot", "a picture of %d combinations cannot be read; take at most %d", len(r.Results), maxPlotted)
	}
	s := r.scene()
	if strings.EqualFold(path.Ext(file), ".svg") {
		return s.writeSVG(out)
	}
	return s.writePNG(out)
}
