// `cenote nvme`: a look at a store of the NVMe tier that no node has open.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "commands/operator/nvme_store.hpp"

namespace CLI {
class App;
}

namespace cenote {

void add_nvme(CLI::App& app);

// Sizes in bytes, times in unix seconds; ids of 64 bits and keys in hexadecimal.
[[nodiscard]] nlohmann::json to_json(const store_summary& store);
[[nodiscard]] nlohmann::json to_json(const verify_report& report);
/// The same as a person reads it.
[[nodiscard]] std::string text_of(const store_summary& store);
[[nodiscard]] std::string text_of(const verify_report& report);

}  // namespace cenote
