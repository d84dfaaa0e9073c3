#include "services/indexer/placement/name_domains.hpp"

#include <utility>

namespace cenote::indexer {

adapter_domains* name_domains::obtain(std::vector<adapter_domains>& present, model_number model,
                                      std::string_view lora_name, std::uint32_t engine_tokens) {
  for (adapter_domains& each : present) {
    if (each.engine_tokens == engine_tokens && each.lora_name == lora_name) return &each;
  }
  if (present.size() == most_adapters) return nullptr;
  domain_key key{model, std::string(lora_name), engine_tokens};
  auto shared = shared_.find(key);
  if (shared == shared_.end()) {
    const auto number = index_.begin_domain();
    if (!number) return nullptr;
    shared = shared_.emplace(std::move(key), shared_domain{*number, 0}).first;
  }
  ++shared->second.users;
  return &present.emplace_back(std::string(lora_name), engine_tokens, shared->second.number, no_domain);
}

bool name_domains::split(adapter_domains& changed) {
  const auto number = index_.begin_domain();
  if (!number) return false;
  changed.private_one = *number;
  return true;
}

void name_domains::renew(std::vector<adapter_domains>& present, model_number model) {
  for (adapter_domains& domains : present) {
    if (domains.private_one != no_domain) index_.end_domain(std::exchange(domains.private_one, no_domain));
    shared_domain& shared = shared_.find(key_of(model, domains))->second;
    if (shared.users > 1) continue;
    const auto number = index_.begin_domain();
    if (!number) continue;
    index_.end_domain(shared.number);
    domains.shared = shared.number = *number;
  }
}

void name_domains::release(std::vector<adapter_domains>& present, model_number model) {
  for (const adapter_domains& domains : present) {
    if (domains.private_one != no_domain) index_.end_domain(domains.private_one);
    const auto shared = shared_.find(key_of(model, domains));
    if (--shared->second.users > 0) continue;
    index_.end_domain(shared->second.number);
    shared_.erase(shared);
  }
  present.clear();
}

}  // namespace cenote::indexer
