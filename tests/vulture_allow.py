"""Names that are used by others than our own code: pytest, rich, JSON, users. Read by vulture only."""

# ruff: noqa: B018, F821

# hooks that pytest, xdist and pytest-benchmark call
_.pytest_addoption
_.pytest_configure
_.pytest_configure_node
_.pytest_benchmark_update_json
_.pytest_collect_file
_.pytest_ignore_collect
_.pytest_collection_finish
_.pytest_collectstart
_.pytest_collection_modifyitems
_.pytest_generate_tests
_.pytest_ignore_collect
_.pytest_report_collectionfinish
_.pytest_report_header
_.pytest_report_to_serializable
_.pytest_sessionstart
_.pytest_runtestloop
_.pytest_runtest_call
_.pytest_runtest_protocol
_.pytest_runtest_logfinish
_.pytest_runtest_logreport
_.pytest_runtest_makereport
_.pytest_sessionfinish
_.pytest_terminal_summary
_.pytest_unconfigure
_.pytest_testnodedown
_.reportinfo

# called in another environment's Python
_.answer_build
_.runtest
_.setup
_.collect
_.toterminal

# methods that Python's import system calls
_.get_code

# fixtures, and what they give to users' tests
_.cgins_benchmark
_.cgins_case
_.cgins_kernel
_.cgins_record
_.args
_.kwargs
_.gold

# the package's lazy attributes
_.__getattr__

# attributes that torch reads
_.supports_higher_order_operators
_._should_skip_dynamo

# services and their methods, which workers are told by name
_.RankService
_.TimingService
_.VerificationService
_.JudgeService
_.judge
_.run_late
_.judge_timed
_.first_failure
_.output_metas

# fields and schemas that are written for others to read
_.python
_.driver
_.triton
_.host_cores
_.samples_ns_per_call
_.iqr_ns_per_call
_.speedup_low
_.speedup_high
_.log_e_clean
_.log_e_faster
_.peak_bytes_per_s
_.peak_flops_per_s
_.schema_version
_.contributes

# what exported packages call, and what torch's logger reads
_.refuse_gradients
_.disabled

# run by a process that forks workers, and read by multiprocessing
_.serve
_.authkey
# what policies of regeneration call
_.classify
_.remember
# a field of counts that scripts read
_.regressed
# of a device, read by templates of prompts
_.warp_width
_.threads_per_block
_.threads_per_sm
_.shared_nbytes_per_block
_.shared_nbytes_per_block_opt_in
_.shared_nbytes_per_sm
_.registers_per_sm
_.l2_nbytes
_.clock_mhz
_.memory_clock_mhz
_.memory_bus_bits
_.vector_flags
_.caches
# of Triton's autotuners, and of its compiler
_.do_bench
_._bench
_.cache_results
_.listener
