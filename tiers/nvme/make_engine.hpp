// The engine for a path: the best one that this machine allows.
#pragma once

#include <memory>

#include "core/choices.hpp"
#include "core/error.hpp"
#include "tiers/nvme/io.hpp"
#include "tiers/nvme/path_file.hpp"

namespace cenote::nvme {

using cenote::engine_kind;

/// The file must live longer than the engine; name() tells what was chosen. Errors: unsupported, system. Thread-safe.
[[nodiscard]] result<std::unique_ptr<io_engine>> make_engine(engine_kind kind, const path_file& file,
                                                             const engine_options& options, io_engine::callback done);

}  // namespace cenote::nvme
