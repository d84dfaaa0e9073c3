// Domains of engines' hashes: one for all publishers of a model and an adapter, and one for each whose hashes differ.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "services/indexer/forest/forest.hpp"

namespace cenote::indexer {

/// The domains of the hashes that a publisher has for one adapter, or for the base model.
struct adapter_domains {
  std::string lora_name;
  std::uint32_t engine_tokens = 0;  ///< of an engine's block, where the index's has another size; 0: the same
  name_domain shared = no_domain;
  name_domain private_one = no_domain;  ///< no_domain: its hashes agree with those of others
};

/// The domain that the publisher's hashes are in.
[[nodiscard]] inline name_domain present_domain(const adapter_domains& domains) noexcept {
  return domains.private_one != no_domain ? domains.private_one : domains.shared;
}

/// Counts the users of shared domains, and ends those without any. The writer's alone.
class name_domains {
 public:
  static constexpr std::size_t most_adapters = 1024;  ///< of a publisher, the base model among them

  explicit name_domains(forest& index) noexcept : index_(index) {}

  /// The publisher's domains of an adapter, made if there are none; null: there are too many. Engines whose blocks have
  /// other sizes have other hashes.
  [[nodiscard]] adapter_domains* obtain(std::vector<adapter_domains>& present, model_number model,
                                        std::string_view lora_name, std::uint32_t engine_tokens);
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

  using domain_key = std::tuple<model_number, std::string, std::uint32_t>;

  [[nodiscard]] static domain_key key_of(model_number model, const adapter_domains& domains) {
    return {model, domains.lora_name, domains.engine_tokens};
  }

  forest& index_;
  std::map<domain_key, shared_domain> shared_;
};

}  // namespace cenote::indexer
