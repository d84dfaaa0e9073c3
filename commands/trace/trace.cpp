#include "commands/trace/trace.hpp"

#include <CLI/CLI.hpp>

#include <memory>

#include "commands/common.hpp"
#include "commands/trace/convert.hpp"
#include "commands/trace/info.hpp"

namespace cenote {

namespace {

void add_json(CLI::App& command, bool& as_json) {
  command.add_flag("--json", as_json, "One object");
}

void add_target(CLI::App& command, traces::convert_options& options) {
  options.trace.add_to(command);
  command.add_option("--out", options.out, "The file to write")->required();
  command.add_flag("--full-blocks", options.full_blocks, "Without the blocks that are not full of tokens");
  command.add_flag("--force", options.force, "Replace the file that is there");
  add_json(command, options.as_json);
}

void add_convert(CLI::App& family) {
  auto* command = family.add_subcommand("convert", "Write recorded requests as a .ctrace file");
  auto options = std::make_shared<traces::convert_options>();
  add_target(*command, *options);
  command->callback([options] { end_with(traces::run_convert(*options)); });
}

void add_anonymise(CLI::App& family) {
  auto* command = family.add_subcommand("anonymise", "Write them as a .ctrace file that names nothing");
  auto options = std::make_shared<traces::convert_options>();
  add_target(*command, *options);
  command->footer("Identities of blocks are drawn anew, times begin at 0, instances and sessions are numbered.");
  command->callback([options] { end_with(traces::run_anonymise(*options)); });
}

void add_info(CLI::App& family) {
  auto* command = family.add_subcommand("info", "What a file of recorded requests holds");
  auto options = std::make_shared<traces::info_options>();
  options->trace.add_to(*command);
  add_json(*command, options->as_json);
  command->callback([options] { end_with(traces::run_info(*options)); });
}

}  // namespace

void add_trace(CLI::App& app) {
  auto* family = app.add_subcommand("trace", "Files of recorded requests: .ctrace, and logs of other systems");
  family->require_subcommand(1);
  add_convert(*family);
  add_anonymise(*family);
  add_info(*family);
}

}  // namespace cenote
