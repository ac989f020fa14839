package simulate

import (
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
)

// pngScale is pixels for each unit of a scene: two, for today's screens.
const pngScale = 2.0

func (s *scene) writePNG(out io.Writer) error {
	img := image.NewRGBA(image.Rect(0, 0, int(math.Ceil(s.width*pngScale)), int(math.Ceil(s.height*pngScale))))
	for _, r := range s.rects {
		fillRect(img, r.x*pngScale, r.y*pngScale, r.w*pngScale, r.h*pngScale, r.fill)
	}
	for _, l := range s.lines {
		drawLine(img, l)
	}
	for _, t := range s.texts {
		drawText(img, t)
	}
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	return encoder.Encode(out, img)
}

// fillRect covers pixels at the edges in part.
func fillRect(img *image.RGBA, x, y, w, h float64, c color.RGBA) {
	for py := int(y); py < int(math.Ceil(y+h)); py++ {
		vertical := min(float64(py)+1, y+h) - max(float64(py), y)
		for px := int(x); px < int(math.Ceil(x+w)); px++ {
			blend(img, px, py, c, vertical*(min(float64(px)+1, x+w)-max(float64(px), x)))
		}
	}
}

func drawLine(img *image.RGBA, l line) {
	for y := l.y1; y < l.y2; y += dash + gap {
		fillRect(img, (l.x-l.width/2)*pngScale, y*pngScale, l.width*pngScale, min(dash, l.y2-y)*pngScale, l.stroke)
	}
}

func blend(img *image.RGBA, x, y int, c color.RGBA, cover float64) {
	if cover <= 0 || !(image.Point{X: x, Y: y}.In(img.Rect)) {
		return
	}
	cover = min(cover, 1)
	at := img.PixOffset(x, y)
	for i, part := range []uint8{c.R, c.G, c.B} {
		old := float64(img.Pix[at+i])
		img.Pix[at+i] = uint8(math.Round(old + (float64(part)-old)*cover))
	}
	img.Pix[at+3] = 0xff
}

// Sizes of letters, relative to a text's size.
const (
	dotHeight  = 0.7 / 6  // from row to row: capitals have seven rows
	dotWidth   = 0.53 / 6 // from column to column
	betweenTwo = 1.7      // columns from the end of a letter to the next
	blankWidth = 3.4      // columns
)

// stroke is a part of a letter, in columns and rows.
type stroke struct{ x1, y1, x2, y2 float64 }

// strokes connects dots that touch; diagonally only where no dot beside them does it.
func strokes(glyph [5]byte) (found []stroke, first, last int) {
	lit := func(x, y int) bool { return x >= 0 && x < 5 && y >= 0 && y < 8 && glyph[x]>>y&1 == 1 }
	first, last = 5, -1
	for x := range 5 {
		for y := range 8 {
			if !lit(x, y) {
				continue
			}
			first, last = min(first, x), max(last, x)
			at := stroke{float64(x), float64(y), float64(x), float64(y)}
			if neighbours(lit, x, y) == 0 {
				found = append(found, at)
			}
			for _, to := range [][2]int{{1, 0}, {0, 1}, {1, 1}, {1, -1}} {
				diagonal := to[0] != 0 && to[1] != 0
				if !lit(x+to[0], y+to[1]) || diagonal && (lit(x+to[0], y) || lit(x, y+to[1])) {
					continue
				}
				found = append(found, stroke{at.x1, at.y1, at.x1 + float64(to[0]), at.y1 + float64(to[1])})
			}
		}
	}
	return found, first, last
}

func neighbours(lit func(x, y int) bool, x, y int) (count int) {
	for dx := -1; dx <= 1; dx++ {
		for dy := -1; dy <= 1; dy++ {
			if (dx != 0 || dy != 0) && lit(x+dx, y+dy) {
				count++
			}
		}
	}
	return count
}

func textWidth(t label) float64 {
	width := 0.0
	for _, r := range t.text {
		width += advance(r)
	}
	return (width - betweenTwo + 1) * dotWidth * t.size
}

// advance is how many columns a letter takes, with the space after it.
func advance(r rune) float64 {
	if r == ' ' {
		return blankWidth
	}
	_, first, last := strokes(glyphOf(r))
	return float64(last-first) + betweenTwo
}

func glyphOf(r rune) [5]byte {
	if glyph, known := letters[r]; known {
		return glyph
	}
	return [5]byte{0x7f, 0x41, 0x41, 0x41, 0x7f}
}

func drawText(img *image.RGBA, t label) {
	x := t.x
	if t.anchor == middle {
		x -= textWidth(t) / 2
	}
	unitX, unitY := dotWidth*t.size*pngScale, dotHeight*t.size*pngScale
	pen := 0.047 * t.size * pngScale
	if t.bold {
		pen *= 1.4
	}
	left, top := x*pngScale, t.y*pngScale-6*unitY
	for _, r := range t.text {
		if r != ' ' {
			parts, first, _ := strokes(glyphOf(r))
			drawStrokes(img, parts, left-float64(first)*unitX, top, unitX, unitY, pen, t.fill)
		}
		left += advance(r) * unitX
	}
}

// drawStrokes darkens pixels by their distance from the nearest stroke.
func drawStrokes(img *image.RGBA, parts []stroke, left, top, unitX, unitY, pen float64, c color.RGBA) {
	x1, x2 := int(left-pen)-1, int(left+4*unitX+pen)+2
	y1, y2 := int(top-pen)-1, int(top+7*unitY+pen)+2
	for y := y1; y <= y2; y++ {
		for x := x1; x <= x2; x++ {
			nearest := math.Inf(1)
			for _, s := range parts {
				d := distance(float64(x)+0.5, float64(y)+0.5, left+s.x1*unitX, top+s.y1*unitY, left+s.x2*unitX, top+s.y2*unitY)
				if s.x1 == s.x2 && s.y1 == s.y2 {
					d -= 0.7 * pen // a dot would look lost at the width of a line
				}
				nearest = min(nearest, d)
			}
			blend(img, x, y, c, pen+0.5-nearest)
		}
	}
}

// distance is that of a point from a line between two others.
func distance(x, y, x1, y1, x2, y2 float64) float64 {
	dx, dy := x2-x1, y2-y1
	along := 0.0
	if square := dx*dx + dy*dy; square > 0 {
		along = min(max(((x-x1)*dx+(y-y1)*dy)/square, 0), 1)
	}
	return math.Hypot(x-x1-along*dx, y-y1-along*dy)
}
