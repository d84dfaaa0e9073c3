// Each field of an instance's spec, and how a test changes it.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "core/instance_spec.hpp"

namespace cenote::testing {

template <class T>
using changes_of = std::map<std::string, std::function<void(T&)>>;

inline const changes_of<instance_spec> spec_changes{
    {"id", [](auto& spec) { spec.id = "other"; }},
    {"model", [](auto& spec) { spec.model = "other"; }},
    {"dtype", [](auto& spec) { spec.dtype = "other"; }},
    {"layout", [](auto& spec) { spec.layout = "other"; }},
    {"tokens_per_block", [](auto& spec) { ++spec.tokens_per_block; }},
    {"groups", [](auto& spec) { spec.groups.push_back({.name = "other", .parts = {{.name = "kv", .bytes = 4096}}}); }},
    {"hash_scheme", [](auto& spec) { spec.hash_scheme = "other"; }},
    {"fingerprint", [](auto& spec) { spec.fingerprint = "other"; }},
    {"instance_group", [](auto& spec) { spec.instance_group = "other"; }},
};

}  // namespace cenote::testing
