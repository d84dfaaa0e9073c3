#include "config/document.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>

#include "config/schema.hpp"
#include "config/value.hpp"

namespace cenote::config {
namespace {

constexpr std::string_view introduction = R"(# Configuration

This page is written from the schema in `config/schema.cpp`; a test keeps the two equal. A node needs no configuration:
every key has a default. What overrides it, weakest first:

1. a TOML file: `cenote node --config cenote.toml`; without that option the one that `CENOTE_CONFIG` names, else, for commands of
   a node, `/etc/cenote/cenote.toml` if it exists. `--config ''` or an empty `CENOTE_CONFIG`: none;
2. environment variables: `CENOTE_DRAM__CAPACITY=4GiB` sets `dram.capacity` (a double underscore is a dot, upper case
   becomes lower case); variables without a double underscore, as `CENOTE_SOCKET`, are not keys, and one that
   is almost a key (`CENOTE_DRAM_CAPACITY`) has a line on standard error;
3. options: `--set dram.capacity=4GiB`. The value is TOML, else a string; lists need no quotes: `--set 'key=[/a,/b]'`.

Sizes: a number with B, KiB, MiB, GiB, TiB, PiB (powers of 1024) or kB, MB, GB, TB, PB (powers of 1000); a plain number
is bytes. Durations: a number with ns, us, ms, s, m, h or d. Fractions are allowed (`"1.5GiB"`). Unknown keys and values
out of range are refused. `cenote config show` prints the file, every value and where it came from; `cenote config check`
says whether a node would start with them on this machine; `cenote init` writes one for this machine. Keys marked "reload" take effect on SIGHUP; the others when the node is stopped and started again. An edited file
changes nothing by itself: a worker that is replaced, and an upgraded node, go on with what the node runs with.
)";

std::string_view about_section(std::string_view section) {
  if (section == "node") return "The daemon itself.";
  if (section == "dram") return "The DRAM tier.";
  if (section == "publish") return "Events about what the node holds, for an index of many: see events.md.";
  if (section == "trace") return "Spans of requests for a collector of OpenTelemetry: see `how-to/observe.md`.";
  if (section == "prefetch") return "What is brought up from lower tiers, and for how long: see `prefetch.md`.";
  if (section == "optimize") return "Estimates from the requests of a running node: see `optimize.md`.";
  if (section == "session") return "Limits of each attached process.";
  if (section == "gpu") return "Engines whose KV lies on a GPU, and the tier of device memory above DRAM.";
  if (section == "instances") return "When instances that nobody uses are given up.";
  if (section == "limits") return "How much one session, user or group may have; see operations.md.";
  if (section == "auth") return "Who may attach, and who may administrate.";
  if (section == "groups") return "Instance groups; `<name>` is the group's name, in quotes if it has dots or spaces.";
  if (section == "publishers") return "Publishers of KV events that `cenote indexer` hears; `<name>` is yours.";
  if (section == "indexer") return "The indexer, `cenote indexer`: see `indexer.md`. A node needs none of it.";
  if (section == "events") return "Publishers that connect to the indexer, and what holds for all of them.";
  if (section == "discovery") return "Where the indexer finds further publishers.";
  if (section == "index") return "The index in the indexer's memory.";
  if (section == "scoring") return "What the indexer's scores count.";
  if (section == "tokenizer") return "Tokens of texts for the indexer: a process beside it.";
  if (section == "manager") return "The manager, `cenote manager`: see `manager.md`. A node needs none of it.";
  if (section == "log") return "The log, on stderr.";
  return "";
}

std::string values_of(const key_schema& schema) {
  if (schema.type == value_type::choice) return fmt::format("{}", fmt::join(choices_of(schema), ", "));
  auto range = range_of(schema);
  if (schema.unit.empty()) return range;
  return range.empty() ? std::string(schema.unit) : fmt::format("{} ({})", range, schema.unit);
}

std::string row(const key_schema& schema) {
  return fmt::format("| `{}` | {} | `{}` | {} | {} | {} |\n", schema.name, type_name(schema.type),
                     to_toml(default_of(schema)), values_of(schema), schema.reloadable ? "reload" : "restart",
                     schema.about);
}

}  // namespace

std::string document_schema() {
  std::string page(introduction);
  std::string_view section;
  for (const auto& schema : all_keys()) {
    const auto of_key = schema.name.substr(0, schema.name.find('.'));
    if (of_key != section) {
      section = of_key;
      page += fmt::format(
          "\n## {}\n\n{}\n\n| key | type | default | values | change | what it is for |\n| --- | --- | --- | "
          "--- | --- | --- |\n",
          section, about_section(section));
    }
    page += row(schema);
  }
  return page;
}

}  // namespace cenote::config
