#include "actors/remote_report.hpp"

namespace cenote {

namespace {

report_part part_of(const remote_backend_report& backend) {
  report_part one{.list = "remote.backends", .label = "backend", .name = backend.name, .texts = {}, .figures = {}};
  one.texts = {{.path = "remote.backends[].name", .value = backend.name},
               {.path = "remote.backends[].serves",
                .value = backend.state.stands,
                .metric = "cenote_remote_backend_serving",
                .help = "1 when a backend answers, else 0.",
                .gauge = backend.state.stands ? 1.0 : 0.0},
               {.path = "remote.backends[].breaker",
                .value = std::string(name_of(backend.state.breaker)),
                .metric = "cenote_remote_backend_breaker_closed",
                .help = "1 when a backend is asked without restraint, else 0.",
                .gauge = backend.state.breaker == redis::breaker_state::closed ? 1.0 : 0.0},
               {.path = "remote.backends[].last_error", .value = backend.state.why}};
  append_figures(one.figures, backend.removals);
  return one;
}

}  // namespace

void remote_report::describe() {
  append_figures(gauges, now);
  append_figures(counters, totals);
  constexpr std::string_view family = "cenote_remote_transfer_seconds";
  times = {{.path = "remote.gets",
            .metric = family,
            .help = "From the hand-over to a backend until it answered.",
            .of = gets,
            .label = {"what", "get"}},
           {.path = "remote.puts", .metric = family, .help = "", .of = puts, .label = {"what", "put"}}};
  for (const remote_backend_report& each : backends) parts.push_back(part_of(each));
}

}  // namespace cenote
