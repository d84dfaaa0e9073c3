#include "commands/trace/target.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <filesystem>
#include <system_error>
#include <utility>

#include "commands/common.hpp"
#include "commands/replay/page.hpp"
#include "commands/trace/info.hpp"
#include "core/whole_file.hpp"
#include "simulation/formats/ctrace.hpp"

namespace cenote::traces {

void target_options::add_to(CLI::App& command) {
  command.add_option("--out", out, "The file to write")->required();
  command.add_flag("--force", force, "Replace the file that is there");
  command.add_flag("--json", as_json, "One object");
}

result<void> target_options::check() const {
  std::error_code unknown;
  const auto status = std::filesystem::status(out, unknown);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    return fail(error_code::invalid_argument, fmt::format("--out {} is no plain file", out));
  }
  if (std::filesystem::exists(status) && !force) {
    return fail(error_code::invalid_argument, fmt::format("--out {} is there already; --force replaces it", out));
  }
  if (auto good = replay::check_writable(out); !good) return std::unexpected(good.error().in("--out"));
  return {};
}

exit_code write_target(read_trace source, const std::string& name, const target_options& target) {
  const auto bytes = formats::ctrace::encode(source.requests, {.lines = source.lines,
                                                               .left_out = source.left_out,
                                                               .full_blocks = source.full_blocks,
                                                               .anonymised = source.anonymised,
                                                               .seed = source.seed,
                                                               .instances = source.instances});
  if (!bytes) return failed_with(bytes.error().in(name));
  if (auto ok = replace_whole(target.out, *bytes); !ok) return failed_with(ok.error());
  source.format = own_format;
  print(summary_of(source, bytes->size()), target.as_json);
  return exit_code::orderly;
}

}  // namespace cenote::traces
