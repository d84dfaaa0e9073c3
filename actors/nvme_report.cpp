#include "actors/nvme_report.hpp"

namespace cenote {

namespace {

report_part part_of(const nvme::path_status& state, const nvme_path_report& path) {
  report_part one{.list = "nvme.paths", .label = "path", .name = path.directory, .texts = {}, .figures = {}};
  one.texts = {{.path = "nvme.paths[].directory", .value = path.directory},
               {.path = "nvme.paths[].engine", .value = path.engine},
               {.path = "nvme.paths[].direct", .value = path.direct},
               {.path = "nvme.paths[].state",
                .value = std::string(name_of(state.state)),
                .metric = "cenote_nvme_path_serving",
                .help = "1 when a path reads and writes, else 0.",
                .gauge = state.state == nvme::path_state::serving ? 1.0 : 0.0},
               {.path = "nvme.paths[].takes_writes", .value = state.takes_writes},
               {.path = "nvme.paths[].last_error", .value = state.why}};
  append_figures(one.figures, state);
  append_figures(one.figures, path);
  return one;
}

}  // namespace

void nvme_report::describe() {
  append_figures(gauges, store);
  append_figures(counters, store.counters);
  append_figures(counters, *this);
  constexpr std::string_view family = "cenote_nvme_transfer_seconds";
  times = {{.path = "nvme.reads",
            .metric = family,
            .help = "From the hand-over to a path until a transfer's end was heard of.",
            .of = reads,
            .label = {"what", "read"}},
           {.path = "nvme.writes", .metric = family, .help = "", .of = writes, .label = {"what", "write"}}};
  for (std::size_t i = 0; i < paths.size() && i < store.paths.size(); ++i) {
    parts.push_back(part_of(store.paths[i], paths[i]));
  }
}

}  // namespace cenote
