package simulate

import (
	"fmt"
	"image/color"
	"math"
)

// maxPlotted is how many results a picture may have.
const maxPlotted = 60

// scene is a picture as rectangles, lines and texts, for both formats.
type scene struct {
	width, height float64
	rects         []rect
	lines         []line
	texts         []label
}

type rect struct {
	x, y, w, h float64
	fill       color.RGBA
}

// line is upright and dashed.
type line struct {
	x, y1, y2 float64
	stroke    color.RGBA
	width     float64
}

type anchor int

const (
	left anchor = iota
	middle
)

type label struct {
	x, y   float64 // y is the base line
	text   string
	size   float64 // height of the capitals is about 0.7 of it
	fill   color.RGBA
	anchor anchor
	bold   bool
}

var (
	ink    = color.RGBA{0x1f, 0x29, 0x33, 0xff}
	faint  = color.RGBA{0x64, 0x70, 0x7d, 0xff}
	grid   = color.RGBA{0xe3, 0xe7, 0xec, 0xff}
	ideal  = color.RGBA{0xc4, 0x36, 0x2b, 0xff}
	stripe = color.RGBA{0xf6, 0xf8, 0xfa, 0xff}
)

// hues are one for each strategy, told apart also by people who do not see colours well.
var hues = map[Strategy]color.RGBA{
	Mod:       {0xd5, 0x5e, 0x00, 0xff},
	Hash:      {0x2b, 0x6c, 0xb0, 0xff},
	Range:     {0x2f, 0x9e, 0x7d, 0xff},
	List:      {0xa8, 0x5c, 0x9e, 0xff},
	Directory: {0x8a, 0x7a, 0x2a, 0xff},
}

// dash and gap of lines.
const dash, gap = 4, 3

const (
	margin      = 24.0
	headHeight  = 112.0
	rowHeight   = 26.0
	footHeight  = 62.0
	panelWidth  = 236.0
	valueWidth  = 52.0 // for the number behind the longest bar
	panelGap    = 26.0
	letterWidth = 0.62 // of a text's size, in the PNG's letters
)

// scene lays panels out side by side, with one row for each result.
func (r *Report) scene() *scene {
	names := 0
	for _, res := range r.Results {
		names = max(names, len(res.Name()))
	}
	start := margin + float64(names)*13*letterWidth + 14
	panels := r.panels()
	s := &scene{
		width:  math.Ceil(start + float64(len(panels))*(panelWidth+panelGap) - panelGap + margin),
		height: headHeight + rowHeight*float64(len(r.Results)) + footHeight,
	}
	s.rects = append(s.rects, rect{0, 0, s.width, s.height, color.RGBA{0xff, 0xff, 0xff, 0xff}})
	title := fmt.Sprintf("%s keys (%s): %s", grouped(r.Keys), r.Dist, r.change())
	s.texts = append(s.texts, label{margin, 36, title, 20, ink, left, true})
	for i, res := range r.Results {
		y := headHeight + rowHeight*float64(i)
		if i%2 == 0 {
			s.rects = append(s.rects, rect{margin - 8, y, s.width - 2*margin + 16, rowHeight, stripe})
		}
		s.texts = append(s.texts, label{margin, y + 18, res.Name(), 13, ink, left, false})
	}
	for i, p := range panels {
		s.drawPanel(p, r.Results, start+float64(i)*(panelWidth+panelGap))
	}
	return s
}

func (s *scene) drawPanel(p panel, results []Result, x float64) {
	width := panelWidth - valueWidth
	bottom := headHeight + rowHeight*float64(len(results))
	s.texts = append(s.texts,
		label{x, 72, p.title, 14, ink, left, true},
		label{x, 91, p.subtitle, 11, faint, left, false})
	for _, part := range []float64{0, 0.5, 1} {
		at := x + part*width
		s.rects = append(s.rects, rect{at - 0.5, headHeight, 1, bottom - headHeight, grid})
		s.texts = append(s.texts, label{at, bottom + 18, p.tick(part * p.top), 11, faint, middle, false})
	}
	for i, v := range p.values {
		y := headHeight + rowHeight*float64(i)
		length := max(v/p.top*width, 1)
		s.rects = append(s.rects, rect{x, y + 6, length, rowHeight - 12, hues[results[i].Strategy]})
		// Numbers stand in a column, where no mark crosses them.
		s.texts = append(s.texts, label{x + width + 8, y + 18, p.label(v), 12, ink, left, false})
	}
	if p.markName == "" {
		return
	}
	at := x + p.mark/p.top*width
	s.lines = append(s.lines, line{at, headHeight - 6, bottom + 4, ideal, 1.5})
	s.texts = append(s.texts, label{at, bottom + 38, p.markName + " " + p.label(p.mark), 11, ideal, middle, true})
}
