package environ

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	for name, want := range map[string][3]bool{ // IsBase, IsCallers, IsFromHere
		"PATH":                  {true, true, true},
		"LC_TIME":               {true, true, true},
		"TERM":                  {true, false, false},
		"SHELL":                 {true, false, false},
		"VIRTUAL_ENV":           {false, false, true},
		"GITHUB_TOKEN":          {false, false, false},
		"AWS_SECRET_ACCESS_KEY": {false, false, false},
		"SSH_AUTH_SOCK":         {false, false, false},
		"https_proxy":           {false, false, false},
	} {
		if got := [3]bool{IsBase(name), IsCallers(name), IsFromHere(name)}; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	faq, err := os.ReadFile("../../docs/faq.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Concat(base, toolchain) {
		if IsFromHere(name) != strings.Contains(string(faq), "`"+name+"`") {
			t.Errorf("docs/faq.md does not say what --env-from-here does with %s", name)
		}
	}
	secret := regexp.MustCompile(`(?i)token|key|secret|passw|credential|auth|proxy|_url`)
	for _, name := range slices.Concat(base, toolchain) {
		if secret.MatchString(name) {
			t.Errorf("%s is passed on, and may hold a secret", name)
		}
	}
}

func TestForPlaces(t *testing.T) {
	if !IsForPlaces("DOCKER_HOST") || IsForPlaces("AWS_SECRET_ACCESS_KEY") {
		t.Error("IsForPlaces is wrong")
	}
	got := ForPlaces([]string{"HOME=/root", PlacePrefix + "SSH_AUTH_SOCK=/a=b", "TRL_SOCKET=/s"})
	if want := []string{"HOME=/root", "SSH_AUTH_SOCK=/a=b", "TRL_SOCKET=/s"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
