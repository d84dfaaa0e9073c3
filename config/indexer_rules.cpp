#include "config/indexer_rules.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "config/cluster_rules.hpp"
#include "config/value.hpp"

namespace cenote::config {

namespace {

constexpr std::size_t longest_name = 256;  // bytes

std::optional<key_fault> publisher_fault(const node_config& config) {
  for (const auto& [name, publisher] : config.publishers) {
    const std::string table = "publishers." + name + ".";
    const auto first = config.settings.lower_bound(table);
    if (publisher.endpoint.empty()) {
      return key_fault{first->first, fmt::format("publisher `{}` needs an endpoint, as \"tcp://10.0.0.7:5557\"", name)};
    }
    for (const std::string* const text : {&publisher.pod, &publisher.model, &publisher.node, &name}) {
      if (text->size() <= longest_name) continue;
      return key_fault{first->first, fmt::format("publisher `{}`: names have at most {} bytes", name, longest_name)};
    }
  }
  return std::nullopt;
}

std::optional<key_fault> tokenizer_fault(const node_config& config) {
  const tokenizer_section& tokenizer = config.tokenizer;
  for (const std::string& model : tokenizer.models) {
    const auto equals = model.rfind('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == model.size()) {
      return key_fault{"tokenizer.models",
                       fmt::format("`{}` is no NAME=PATH; right would be \"Qwen/Qwen3-32B=/srv/qwen3\"", model)};
    }
  }
  if (!tokenizer.command.empty()) return std::nullopt;
  constexpr std::string_view why = "is for a tokenizer that the indexer starts: that needs tokenizer.command";
  if (!tokenizer.models.empty()) return key_fault{"tokenizer.models", std::string(why)};
  if (!tokenizer.directories.empty()) return key_fault{"tokenizer.directories", std::string(why)};
  if (tokenizer.hub) return key_fault{"tokenizer.hub", std::string(why)};
  return std::nullopt;
}

// A token that is sent in the clear is anybody's, and so are pods that come so: without TLS the server is this
// machine's.
std::optional<key_fault> discovery_fault(const node_config& config) {
  constexpr std::string_view key = "discovery.kubernetes.server";
  if (config.discovery.kubernetes_server.empty()) return std::nullopt;
  const auto server = parse_web_server(config.discovery.kubernetes_server);
  if (!server) return key_fault{key, server.error().message()};
  if (!server->has_tls && !is_loopback(server->address.host)) {
    return key_fault{key, "is not of this machine: that needs https"};
  }
  return std::nullopt;
}

std::optional<key_fault> backend_fault(const index_section& index) {
  if (index.backend == index_backend::memory) {
    if (!index.url.empty()) return key_fault{"index.url", "is for index.backend = redis"};
    if (!index.auth_file.empty()) return key_fault{"index.auth_file", "is for index.backend = redis"};
    return std::nullopt;
  }
  if (index.url.empty()) return key_fault{"index.url", "is needed with index.backend = redis: redis://host:port"};
  if (index.key == index_key::xxh3 && index.seed.empty()) {
    return key_fault{"index.key",
                     "makes keys by a random seed, and others that share the index make others: with index.backend = "
                     "redis set index.key = fnv64_cbor, llm-d's keys, or an index.seed that all replicas have"};
  }
  return std::nullopt;
}

std::optional<key_fault> indexer_fault(const node_config& config) {
  const indexer_section& indexer = config.indexer;
  if (indexer.tls_cert.empty() != indexer.tls_key.empty()) {
    return key_fault{indexer.tls_cert.empty() ? "indexer.tls_key" : "indexer.tls_cert",
                     "a certificate and its key go together: set both"};
  }
  if (!indexer.tls_ca.empty() && indexer.tls_cert.empty()) {
    return key_fault{"indexer.tls_ca", "needs indexer.tls_cert and indexer.tls_key"};
  }
  const bool is_guarded = !indexer.token_file.empty() || !indexer.tls_ca.empty() || indexer.trusted_network;
  for (const auto& [key, where] : {std::pair("indexer.listen", &indexer.listen), {"indexer.grpc", &indexer.grpc}}) {
    if (!*where || is_guarded || is_loopback((*where)->host)) continue;
    return key_fault{key,
                     "is not for loopback alone: that needs indexer.token_file, or client certificates by "
                     "indexer.tls_ca, or indexer.trusted_network = true"};
  }
  if (config.index.key == index_key::fnv64_cbor && config.index.seed.size() > longest_name) {
    return key_fault{"index.seed", fmt::format("has at most {} bytes", longest_name)};
  }
  if (auto fault = backend_fault(config.index)) return fault;
  if (auto fault = tokenizer_fault(config)) return fault;
  if (auto fault = discovery_fault(config)) return fault;
  return publisher_fault(config);
}

}  // namespace

result<web_server> parse_web_server(std::string_view text) {
  constexpr std::string_view tls = "https://", plain = "http://";
  const bool has_tls = text.starts_with(tls);
  if (!has_tls && !text.starts_with(plain)) {
    return fail(error_code::invalid_argument, "is https://HOST:PORT, or http://HOST:PORT of this machine");
  }
  auto address = parse_endpoint(text.substr(has_tls ? tls.size() : plain.size()));
  if (!address) return std::unexpected(address.error());
  return web_server{std::move(*address), has_tls};
}

result<> check_indexer(const node_config& config) {
  const auto fault = indexer_fault(config);
  if (!fault) return {};
  const setting& place = config.settings.find(fault->key)->second;
  return fail(error_code::invalid_config,
              fmt::format("{}: {} = {}: {}", place.source, fault->key, to_toml(place.value), fault->why));
}

}  // namespace cenote::config
