package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"text/template"
	"time"
)

// noticesName is the file with the licences of the linked modules: most of them
// require it.
const noticesName = "THIRD-PARTY-NOTICES"

// goLicense is the licence of Go's standard library, which not every Go
// installation contains.
//
//go:embed go-license.txt
var goLicense []byte

var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// modules returns the modules that are linked into a binary, except for this
// one.
func modules(info *debug.BuildInfo) []debug.Module {
	var list []debug.Module
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		list = append(list, debug.Module{Path: module.Path, Version: module.Version})
	}
	// The standard library is not a module, but it has a version and
	// vulnerabilities like one.
	list = append(list, debug.Module{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")})
	return list
}

// allModules returns the modules of all binaries, sorted and without
// duplicates.
func (r *release) allModules() []debug.Module {
	var list []debug.Module
	for _, p := range platforms {
		list = append(list, modules(r.linked[p])...)
	}
	slices.SortFunc(list, func(a, b debug.Module) int { return strings.Compare(a.Path, b.Path) })
	return slices.Compact(list)
}

// notices collects the licences of the linked modules.
func (r *release) notices() error {
	var text bytes.Buffer
	fmt.Fprintln(&text, "The trl binary is linked with these modules, under these licences.")
	for _, module := range r.allModules() {
		head := fmt.Sprintf("%s %s", module.Path, module.Version)
		fmt.Fprintf(&text, "\n%s\n%s\n\n", head, strings.Repeat("=", len(head)))
		if module.Path == "stdlib" {
			text.Write(goLicense)
			continue
		}
		cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module.Path)
		cmd.Env = r.environ()
		output, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("locate %s: %w", module.Path, err)
		}
		dir := strings.TrimSpace(string(output))
		files, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		found := false
		for _, file := range files {
			if !licenceFile.MatchString(file.Name()) || file.IsDir() {
				continue
			}
			licence, err := os.ReadFile(filepath.Join(dir, file.Name()))
			if err != nil {
				return err
			}
			fmt.Fprintf(&text, "%s\n", bytes.TrimSpace(licence))
			found = true
		}
		if !found {
			return fmt.Errorf("%s has no licence file", module.Path)
		}
	}
	return write(filepath.Join(r.stage, noticesName), text.Bytes())
}

// spdx is an SPDX 2.3 document, as far as it is used here.
type spdx struct {
	Version       string         `json:"spdxVersion"`
	License       string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      spdxCreation   `json:"creationInfo"`
	Packages      []spdxPackage  `json:"packages"`
	Relationships []spdxRelation `json:"relationships"`
}

type spdxCreation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	ID        string         `json:"SPDXID"`
	Name      string         `json:"name"`
	Version   string         `json:"versionInfo"`
	File      string         `json:"packageFileName,omitempty"`
	Location  string         `json:"downloadLocation"`
	Analyzed  bool           `json:"filesAnalyzed"`
	Checksums []spdxChecksum `json:"checksums,omitempty"`
	License   string         `json:"licenseDeclared"`
	Concluded string         `json:"licenseConcluded"`
	Copyright string         `json:"copyrightText"`
	Refs      []spdxRef      `json:"externalRefs,omitempty"`
}

type spdxChecksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type spdxRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxRelation struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

// notID matches characters that an SPDX identifier must not contain.
var notID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func spdxID(parts ...string) string {
	return "SPDXRef-" + notID.ReplaceAllString(strings.Join(parts, "-"), "-")
}

// sbom writes the bill of materials: each archive and each program in it for
// places, and the modules that are linked into their binaries.
func (r *release) sbom() error {
	const unknown = "NOASSERTION"
	document := spdx{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: "trl-" + r.version,
		Namespace: home + "/releases/download/v" + r.version + "/trl_" + r.version + ".spdx.json",
		Creation:  spdxCreation{Created: r.made.Format(time.RFC3339), Creators: []string{"Tool: " + home + "/packaging/dist"}},
	}
	add := func(id, name, file, location, of string) error {
		sum, err := sumOf(of)
		document.Packages = append(document.Packages, spdxPackage{
			ID: id, Name: name, Version: r.version, File: file, Location: location,
			Checksums: []spdxChecksum{{"SHA256", sum}},
			License:   "Apache-2.0", Concluded: "Apache-2.0", Copyright: unknown,
		})
		return err
	}
	relate := func(from, how, to string) {
		document.Relationships = append(document.Relationships, spdxRelation{from, how, to})
	}
	link := func(id string, p platform) {
		for _, module := range modules(r.linked[p]) {
			relate(id, "STATIC_LINK", spdxID(module.Path, module.Version))
		}
	}
	addArchive := func(id, name string) error {
		file := name + ".tar.gz"
		relate(document.ID, "DESCRIBES", id)
		return add(id, "trl", file, home+"/releases/download/v"+r.version+"/"+file, filepath.Join(r.out, file))
	}
	withPrograms := []string{spdxID("trl-linux-programs")} // the archives that contain the programs for places
	if err := addArchive(withPrograms[0], r.programsArchiveName()); err != nil {
		return err
	}
	for _, p := range platforms {
		id := spdxID("trl", p.os, p.arch)
		if err := addArchive(id, r.name(p)); err != nil {
			return err
		}
		link(id, p)
		if p.os == "darwin" {
			withPrograms = append(withPrograms, id)
		}
	}
	for _, p := range platforms {
		if p.os != "linux" {
			continue
		}
		id := spdxID("trl-program", p.os, p.arch)
		if err := add(id, "trl-program", programName(p), unknown, filepath.Join(r.stage, programName(p))); err != nil {
			return err
		}
		link(id, p)
		for _, archive := range withPrograms {
			relate(archive, "CONTAINS", id)
		}
	}
	for _, module := range r.allModules() {
		document.Packages = append(document.Packages, spdxPackage{
			ID: spdxID(module.Path, module.Version), Name: module.Path, Version: module.Version, Location: unknown,
			License: unknown, Concluded: unknown, Copyright: unknown,
			Refs: []spdxRef{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + module.Path + "@" + module.Version}},
		})
	}
	text, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return err
	}
	return write(filepath.Join(r.out, "trl_"+r.version+".spdx.json"), append(text, '\n'))
}

// formula writes the Homebrew formula, with the checksums of the archives.
func (r *release) formula() error {
	text, err := template.New("trl.rb.tmpl").Funcs(template.FuncMap{
		"file": func(system, arch string) string { return r.name(platform{system, arch}) + ".tar.gz" },
		"sum":  func(file string) (string, error) { return sumOf(filepath.Join(r.out, file)) },
	}).Option("missingkey=error").ParseFiles("packaging/homebrew/trl.rb.tmpl")
	if err != nil {
		return err
	}
	var formula bytes.Buffer
	if err := text.Execute(&formula, map[string]string{"Home": home, "Version": r.version}); err != nil {
		return err
	}
	return write(filepath.Join(r.out, "trl.rb"), formula.Bytes())
}
