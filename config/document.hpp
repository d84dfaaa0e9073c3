// docs/configuration.md, written from the schema so that it cannot drift from it.
#pragma once

#include <string>

namespace cenote::config {

/// The whole page. `cenote config document` prints it; a unit test compares it with the file. Thread-safe.
[[nodiscard]] std::string document_schema();

}  // namespace cenote::config
