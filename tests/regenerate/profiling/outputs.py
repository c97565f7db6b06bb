"""What versions of ncu print as CSV."""

# 2025.3, H200: a column a metric, base units, lines of ncu around the table.
RAW_2025 = """==PROF== Connected to process 4242 (/usr/bin/python3.12)
==PROF== Disconnected from process 4242
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","gpu__time_duration.sum","gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed","dram__bytes_read.sum","sm__throughput.avg.pct_of_peak_sustained_elapsed","smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio","smsp__average_warp_latency_per_inst_issued.ratio","sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
"","","","","","","","","","","","ns","%","byte","%","inst","cycle","%"
"0","4242","python3.12","127.0.0.1","void map_packs<float, Gelu>(Pack<float> *, const Pack<float> *, long, Gelu)","1","7","(256, 1, 1)","(384, 1, 1)","0","9.0","4,096","61.43","1,572,864","22.10","9.6","16","n/a"
"1","4242","python3.12","127.0.0.1","add_up(const float *, int, float *)","1","7","(1, 1, 1)","(1, 1, 1)","0","9.0","1,024","0.31","256","0.02","3","12","n/a"
"""
# The same launches on the page of details, by hand in the columns of 2025: metrics, remarks, and rules that advise.
DETAILS_2025 = """==PROF== Disconnected from process 4242
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Type","Rule Description","Estimated Speedup Type","Estimated Speedup"
"0","4242","python3.12","127.0.0.1","void map_packs<float, Gelu>(Pack<float> *, const Pack<float> *, long, Gelu)","1","7","(256, 1, 1)","(384, 1, 1)","0","9.0","GPU Speed Of Light Throughput","DRAM Throughput","%","61.43","","","","",""
"0","4242","python3.12","127.0.0.1","void map_packs<float, Gelu>(Pack<float> *, const Pack<float> *, long, Gelu)","1","7","(256, 1, 1)","(384, 1, 1)","0","9.0","GPU Speed Of Light Throughput","","","","SOLBottleneck","INF","This workload is bound by memory.","",""
"0","4242","python3.12","127.0.0.1","void map_packs<float, Gelu>(Pack<float> *, const Pack<float> *, long, Gelu)","1","7","(256, 1, 1)","(384, 1, 1)","0","9.0","Occupancy","","","","Occupancy","OPT","The kernel is short of warps: use smaller blocks, <b>or</b> fewer registers.","local","34.6"
"1","4242","python3.12","127.0.0.1","add_up(const float *, int, float *)","1","7","(1, 1, 1)","(1, 1, 1)","0","9.0","Launch Statistics","","","","LaunchConfiguration","WRN","The grid is too small to fill the device.","",""
"""
# 2022.1, A100: old units, with digits grouped and a prefix.
RAW_2022 = """==WARNING== Note: Running with uncontrolled GPU clock frequency. Profiling results may be inconsistent.
"ID","Process ID","Process Name","Host Name","Kernel Name","Kernel Time","Context","Stream","dram__bytes_read.sum","dram__throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum"
"","","","","","","","","Mbyte","%","usecond"
"0","77","python","127.0.0.1","softmax_rows","2022-May-01 10:00:00","1","7","1,234.50","88.25","1,205.00"
"""
# 2020.3: a row a metric, and the names of the details page.
LONG_2020 = """==PROF== Profiling "scale" - 0: 0%....50%....100% - 8 passes
"ID","Process ID","Process Name","Host Name","Kernel Name","Kernel Time","Context","Stream","Section Name","Metric Name","Metric Unit","Metric Value"
"0","9","a.out","127.0.0.1","scale(float *)","2020-Nov-02","1","7","GPU Speed Of Light","SOL SM","%","12.50"
"0","9","a.out","127.0.0.1","scale(float *)","2020-Nov-02","1","7","GPU Speed Of Light","SOL DRAM","%","70.00"
"0","9","a.out","127.0.0.1","scale(float *)","2020-Nov-02","1","7","GPU Speed Of Light","Duration","usecond","2.50"
"0","9","a.out","127.0.0.1","scale(float *)","2020-Nov-02","1","7","Memory","Memory Throughput","Gbyte/second","1,100.00"
"0","9","a.out","127.0.0.1","scale(float *)","2020-Nov-02","1","7","GPU Speed Of Light","Memory Throughput","%","71.00"
"0","9","a.out","127.0.0.1","scale(float *)","2020-Nov-02","1","7","Occupancy","Achieved Occupancy","%","43.21"
"0","9","a.out","127.0.0.1","scale(float *)","2020-Nov-02","1","7","Warp","smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct","%","61.00"
"""
