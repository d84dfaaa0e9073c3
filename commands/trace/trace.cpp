#include "commands/trace/trace.hpp"

#include <CLI/CLI.hpp>

#include <memory>

#include "commands/common.hpp"
#include "commands/trace/convert.hpp"
#include "commands/trace/info.hpp"
#include "commands/trace/record.hpp"

namespace cenote {

namespace {

void add_target(CLI::App& command, traces::convert_options& options) {
  options.trace.add_to(command);
  options.target.add_to(command);
  command.add_flag("--full-blocks", options.full_blocks, "Without the blocks that are not full of tokens");
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
  command->add_flag("--json", options->as_json, "One object");
  command->callback([options] { end_with(traces::run_info(*options)); });
}

void add_record(CLI::App& family) {
  auto* command = family.add_subcommand("record", "Write the requests that a running node is asked for from now on");
  auto options = std::make_shared<traces::record_options>();
  options->add_to(*command);
  command->footer("Ends after --for, or with Ctrl-C. Nothing in the file names a block, an instance or a time of day.");
  command->callback([options] { end_with(traces::run_record(*options)); });
}

}  // namespace

void add_trace(CLI::App& app) {
  auto* family = app.add_subcommand("trace", "Files of recorded requests: .ctrace, and logs of other systems");
  family->require_subcommand(1);
  add_convert(*family);
  add_anonymise(*family);
  add_info(*family);
  add_record(*family);
}

}  // namespace cenote
