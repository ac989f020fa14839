package simulate

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/color"
	"image/png"
	"io"
	"strings"
	"testing"

	"github.com/pgshoal/pgshoal/placement"
)

func smallReport(t *testing.T) *Report {
	return run(t, func(cfg *Config) {
		cfg.Strategies, cfg.Placements, cfg.Keys = []Strategy{Mod, Hash}, []placement.Algorithm{placement.Jump, placement.Maglev}, 50_000
	})
}

// TestPNG looks at the middle of mod's first bar, which has mod's colour as far as 3/4 of the keys reach.
func TestPNG(t *testing.T) {
	report := smallReport(t)
	var out bytes.Buffer
	if err := report.WritePlot(&out, "x.PNG"); err != nil {
		t.Fatal(err)
	}
	if out.Len() > 200_000 {
		t.Errorf("the picture has %d bytes", out.Len())
	}
	img, err := png.Decode(&out)
	if err != nil {
		t.Fatal(err)
	}
	y, coloured := int((headHeight+rowHeight/2)*pngScale), 0
	firstPanel := report.scene().width - margin - 3*(panelWidth+panelGap)
	for x := range int(firstPanel * pngScale) {
		if color.RGBAModel.Convert(img.At(x, y)) == hues[Mod] {
			coloured++
		}
	}
	p := report.panels()[0]
	if want := p.values[0] / p.top * (panelWidth - valueWidth) * pngScale; float64(coloured) < want-8 || float64(coloured) > want+1 {
		t.Errorf("mod's bar has %d pixels, want about %.0f", coloured, want)
	}
}

func TestSVG(t *testing.T) {
	report := smallReport(t)
	report.Dist = "file:<a&b>"
	var out bytes.Buffer
	if err := report.WritePlot(&out, "x.svg"); err != nil {
		t.Fatal(err)
	}
	var texts []string
	decoder := xml.NewDecoder(&out)
	for {
		token, err := decoder.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if data, ok := token.(xml.CharData); ok {
			texts = append(texts, string(data))
		}
	}
	all := strings.Join(texts, "\n")
	for _, want := range []string{"50,000 keys (file:<a&b>): 3 nodes become 4", "hash maglev", "minimum 25.0%", "Fullest node"} {
		if !strings.Contains(all, want) {
			t.Errorf("the picture does not say %q", want)
		}
	}
}

func TestPlotRefuses(t *testing.T) {
	report := &Report{Nodes: 1, To: 1}
	for _, name := range []string{"x", "x.gif", "png"} {
		var input *InputError
		if err := report.WritePlot(io.Discard, name); !errors.As(err, &input) {
			t.Errorf("%s: %v", name, err)
		}
	}
	report.Results = make([]Result, maxPlotted+1)
	if err := report.WritePlot(io.Discard, "x.png"); err == nil || !strings.Contains(err.Error(), "61 combinations") {
		t.Errorf("got %v", err)
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	report := smallReport(t)
	if err := report.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	if err := report.WriteBars(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"50,000 keys (uniform), 3 nodes become 4", "\nKeys that move\n", "minimum 25.0%", "its table of 65537 entries"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, out.String())
		}
	}
}

func TestByteSize(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 999: "999 B", 1000: "1 kB", 12_345: "12.3 kB", 999_999: "1 MB", 19_900_000_000: "19.9 GB"} {
		if got := byteSize(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}
