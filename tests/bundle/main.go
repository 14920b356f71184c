// Judges OLM bundles by the rules that operator-framework publishes, as operator-sdk does.
// Usage: bundle DIR...; prints the findings of each, one a line: DIR, the level, the validator, the words, separated by tabs.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
	interfaces "github.com/operator-framework/api/pkg/validation/interfaces"
)

// multiarch is not among them: it pulls images.
var validators = []struct {
	name      string
	validator interfaces.Validator
}{
	{"csv", validation.ClusterServiceVersionValidator},
	{"crd", validation.CustomResourceDefinitionValidator},
	{"bundle", validation.BundleValidator},
	{"operatorhub/v2", validation.OperatorHubV2Validator},
	{"standardcategories", validation.StandardCategoriesValidator},
	{"standardcapabilities", validation.StandardCapabilitiesValidator},
	{"bundle-objects", validation.ObjectValidator},
	{"alpha-deprecated-apis", validation.AlphaDeprecatedAPIsValidator},
	{"good-practices", validation.GoodPracticesValidator},
}

func main() {
	for _, directory := range os.Args[1:] {
		say := func(level, validator string, words any) {
			line := strings.Join(strings.Fields(fmt.Sprint(words)), " ")
			fmt.Printf("%s\t%s\t%s\t%s\n", directory, level, validator, line)
		}
		bundle, err := manifests.GetBundleFromDir(directory)
		if err != nil {
			say("Error", "load", err)
			continue
		}
		for _, known := range validators {
			for _, result := range known.validator.Validate(bundle.ObjectsToValidate()...) {
				for _, finding := range append(result.Errors, result.Warnings...) {
					say(string(finding.Level), known.name, finding.Error())
				}
			}
		}
	}
}
