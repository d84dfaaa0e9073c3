// Domains of engines' hashes: one for all publishers of a model and an adapter, and one for each whose hashes differ.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "services/indexer/forest/forest.hpp"

namespace cenote::indexer {

/// The domains of the hashes that a publisher has for one adapter, or for the base model.
struct adapter_domains {
  std::string lora_name;
  name_domain shared = no_domain;
  name_domain private_one = no_domain;  ///< no_domain: its hashes agree with those of others
};

/// Counts the users of shared domains, and ends those without any. The writer's alone.
class name_domains {
 public:
  static constexpr std::size_t most_adapters = 1024;  ///< of a publisher, the base model among them

  explicit name_domains(forest& index) noexcept : index_(index) {}

  /// The publisher's domains of an adapter, made if there are none; null: there are too many.
  [[nodiscard]] adapter_domains* obtain(std::vector<adapter_domains>& present, model_number model,
                                        std::string_view lora_name);
  /// Gives the publisher a domain of its own for an adapter; false: there are too many.
  [[nodiscard]] bool split(adapter_domains& changed);
  /// Forgets the names of hashes of the publisher's last life: those that no other publisher has.
  void renew(std::vector<adapter_domains>& present, model_number model);
  /// Ends the publisher's domains.
  void release(std::vector<adapter_domains>& present, model_number model);

 private:
  struct shared_domain {
    name_domain number = no_domain;
    std::uint32_t users = 0;
  };

  forest& index_;
  std::map<std::pair<model_number, std::string>, shared_domain, std::less<>> shared_;
};

}  // namespace cenote::indexer
