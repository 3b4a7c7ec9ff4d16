package front

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/terminal-runtime/trl/api"
)

// Metrics are the daemon's Prometheus metrics. Events are counted as they happen;
// the current state is read when the metrics are scraped.
//
// Every label has few values: the methods of the table, the codes of the contract,
// the outcomes and the states. Client-supplied method names become "unknown".
type Metrics struct {
	registry *prometheus.Registry

	execs        *prometheus.CounterVec
	execDuration prometheus.Histogram
	kills        prometheus.Counter
	survivors    prometheus.Counter

	requests        *prometheus.CounterVec
	requestDuration *prometheus.HistogramVec
}

// Label values for unknown methods and for success.
const (
	unknownMethod = "unknown"
	codeOK        = "OK"
)

func newMetrics() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		execs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trl_execs_total", Help: "Commands that have ended, by outcome.",
		}, []string{"outcome"}),
		execDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "trl_exec_duration_seconds", Help: "How long commands took.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 12), // from 1 ms, a short command, to 70 min, a long build
		}),
		kills: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "trl_kills_total", Help: "Commands that were stopped before they ended by themselves: by a timeout or a request.",
		}),
		survivors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "trl_survivors_total", Help: "Processes that could not be killed at the end of their session. Investigate any value above 0.",
		}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trl_requests_total", Help: "Requests answered, by method and by error code, or OK.",
		}, []string{"method", "code"}),
		requestDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "trl_request_duration_seconds", Help: "How long requests took to answer, by method.",
			Buckets: prometheus.ExponentialBuckets(0.000_1, 4, 10), // from 100 µs, a ping, to 26 s
		}, []string{"method"}),
	}
	m.registry.MustRegister(m.execs, m.execDuration, m.kills, m.survivors, m.requests, m.requestDuration,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// State is what the metrics show of the sessions and their output.
type State struct {
	Sessions                                 map[api.State]int
	CapturedBytes, MemoryBytes, SpilledBytes int64 // of output
}

// collectFrom adds the metrics that are read from state at each scrape.
func (m *Metrics) collectFrom(state func() State) { m.registry.MustRegister(&stateCollector{state}) }

func (m *Metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		// Two scrapers and a person; each request walks all sessions.
		MaxRequestsInFlight: 3,
	})
}

// CountRequest counts one request; see service.Config.
func (m *Metrics) CountRequest(method string, code api.Code, took time.Duration) {
	if method == "" {
		method = unknownMethod
	}
	if code == "" {
		code = codeOK
	}
	m.requests.WithLabelValues(method, string(code)).Inc()
	m.requestDuration.WithLabelValues(method).Observe(took.Seconds())
}

// ExecEnded counts one command that ended.
func (m *Metrics) ExecEnded(outcome api.Outcome, took time.Duration, stopped bool) {
	m.execs.WithLabelValues(string(outcome)).Inc()
	m.execDuration.Observe(took.Seconds())
	if stopped {
		m.kills.Inc()
	}
}

// SessionEnded counts the survivors of one session.
func (m *Metrics) SessionEnded(survivors int) { m.survivors.Add(float64(survivors)) }

// stateCollector collects the current state.
type stateCollector struct{ state func() State }

var (
	sessionsDesc = prometheus.NewDesc("trl_sessions", "Sessions, by state; terminated ones are retained for a while.", []string{"state"}, nil)
	outputDesc   = prometheus.NewDesc("trl_output_bytes_total", "Output captured from commands.", nil, nil)
	memoryDesc   = prometheus.NewDesc("trl_journal_memory_bytes", "Output held in memory.", nil, nil)
	spilledDesc  = prometheus.NewDesc("trl_journal_spilled_bytes", "Output held on disk.", nil, nil)
)

// Describe sends the descriptors of the metrics.
func (*stateCollector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{sessionsDesc, outputDesc, memoryDesc, spilledDesc} {
		to <- desc
	}
}

// Collect reads the metrics.
func (h *stateCollector) Collect(to chan<- prometheus.Metric) {
	now := h.state()
	for state, n := range now.Sessions {
		to <- prometheus.MustNewConstMetric(sessionsDesc, prometheus.GaugeValue, float64(n), string(state))
	}
	to <- prometheus.MustNewConstMetric(outputDesc, prometheus.CounterValue, float64(now.CapturedBytes))
	to <- prometheus.MustNewConstMetric(memoryDesc, prometheus.GaugeValue, float64(now.MemoryBytes))
	to <- prometheus.MustNewConstMetric(spilledDesc, prometheus.GaugeValue, float64(now.SpilledBytes))
}
