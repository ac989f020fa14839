package simulate

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"image/color"
	"io"
	"strings"
)

func (s *scene) writeSVG(out io.Writer) error {
	w := bufio.NewWriter(out)
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" font-family="Helvetica, Arial, sans-serif">`+"\n",
		s.width, s.height, s.width, s.height)
	for _, r := range s.rects {
		fmt.Fprintf(w, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", r.x, r.y, r.w, r.h, hex(r.fill))
	}
	for _, l := range s.lines {
		fmt.Fprintf(w, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%.1f" stroke-dasharray="%d %d"/>`+"\n",
			l.x, l.y1, l.x, l.y2, hex(l.stroke), l.width, dash, gap)
	}
	for _, t := range s.texts {
		weight := ""
		if t.bold {
			weight = ` font-weight="bold"`
		}
		var text strings.Builder
		if err := xml.EscapeText(&text, []byte(t.text)); err != nil {
			return err
		}
		fmt.Fprintf(w, `<text x="%.1f" y="%.1f" font-size="%.0f" fill="%s" text-anchor="%s"%s>%s</text>`+"\n",
			t.x, t.y, t.size, hex(t.fill), []string{"start", "middle"}[t.anchor], weight, text.String())
	}
	fmt.Fprintln(w, "</svg>")
	return w.Flush()
}

func hex(c color.RGBA) string { return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B) }
