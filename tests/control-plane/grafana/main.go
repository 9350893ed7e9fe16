// Reads dashboards as Grafana's own types have them: a field that Grafana does not know, a value of another type, or one that is out of bounds
// is an error. Prints each with its path, and how many panels there are.
package main

import (
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

func main() {
	runtime := cog.NewRuntime()
	runtime.RegisterPanelcfgVariant(timeseries.VariantConfig())
	runtime.RegisterDataqueryVariant(prometheus.VariantConfig())
	wrong := false
	for _, path := range os.Args[1:] {
		problems := check(path)
		wrong = wrong || problems != ""
		if problems != "" {
			fmt.Printf("%s: %s\n", path, problems)
		}
	}
	if wrong {
		os.Exit(1)
	}
}

// What is wrong with a dashboard; nothing if all is as it should be.
func check(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	board := dashboard.Dashboard{}
	// An error without a text is an empty list of errors.
	if err := board.UnmarshalJSONStrict(text); err != nil && err.Error() != "" {
		return err.Error()
	}
	if err := board.Validate(); err != nil && err.Error() != "" {
		return err.Error()
	}
	fmt.Printf("%s: %d panels\n", path, len(board.Panels))
	return ""
}
